// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero {

/// Where values live, fast to slow.
enum class Tier : std::uint8_t {
  device,  ///< memory of the device
  host,    ///< pinned host memory of a GPU's host; on a CPU the same as `device`
  file,    ///< a file on NVMe, read and written through windows of host memory
};

}  // namespace zero
