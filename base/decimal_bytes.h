// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace zero {

/// A size of files in the units that disks are sold in: "0.5 kB", "1.5 MB", "12.3 GB".
std::string decimal_bytes(std::int64_t bytes);

}  // namespace zero
