// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/crc32c.h"

#include <isa-l/crc.h>

#include "base/checked_math.h"

namespace zero {

// ISA-L inverts neither the state it is given nor the state it returns, and takes a buffer that it
// only reads as one that is not const.
std::uint32_t crc32c(std::span<const std::byte> bytes) {
  auto* const data = const_cast<std::byte*>(bytes.data());  // NOLINT(*-const-cast)
  return ~crc32_iscsi(reinterpret_cast<unsigned char*>(data), narrow<int>(bytes.size()), ~0U);
}

}  // namespace zero
