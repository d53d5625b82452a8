// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/memory_ledger.h"

namespace zero {

/// "+1.00 KiB", "-512 B".
std::string signed_size(std::int64_t bytes);

/// A column of a class_table().
struct ClassColumn {
  std::string_view head;
  BytesByClass bytes;
  std::int64_t sum = sum_of(bytes);  ///< where classes peak apart, less than theirs
};
/// Rows of the classes that have bytes in one of the columns, and their sum, each with a newline
/// before it. The first row has the heads.
std::string class_table(std::string_view head, std::span<const ClassColumn> columns);

/// The unit whose buffer has `label`: of the names in `units` the longest that is the label, or is
/// followed there by a dot ("h.0" of "h.0.master"); empty if it is no unit's.
std::string_view unit_of(std::string_view label, const std::vector<std::string>& units);

/// "optimizer h.0.moment (unit h.0)"; the label may be empty.
std::string labelled(MemoryClass memory_class, std::string_view label,
                     const std::vector<std::string>& units);

}  // namespace zero
