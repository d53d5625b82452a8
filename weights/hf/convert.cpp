// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "weights/hf/safetensors.h"

namespace zero {
namespace {

template <typename From>
void decode_from(std::span<const std::byte> bytes, std::span<float> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    to[i] = to_float(value);
  }
}

}  // namespace

void decode(FileType from, std::span<const std::byte> bytes, std::span<float> to) {
  ZERO_CHECK(bytes.size() == to.size() * static_cast<std::size_t>(size_of(from)),
             "{} bytes of {} do not make {} elements", bytes.size(), name_of(from), to.size());
  switch (from) {
    case FileType::f32:
      if (!to.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
      return;
    case FileType::bf16:
      return decode_from<bfloat16>(bytes, to);
    case FileType::f16:
      return decode_from<float16>(bytes, to);
    default:
      fail("elements of {} cannot be read; expected F32, BF16 or F16", name_of(from));
  }
}

}  // namespace zero
