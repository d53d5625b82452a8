// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/memory/memory_series.h"

namespace zero {

/// A series at one place of a picture's time axis.
struct PictureColumn {
  BytesByClass classes{};  ///< where the sum is largest within the column
  std::int64_t total = 0;  ///< their sum
  std::int32_t place = 0;  ///< in the middle of the column's time
};
/// `count` columns of equal time from the begin of a series to its end: no peak is lost, however
/// short.
std::vector<PictureColumn> picture_columns(const MemorySeries& series, int count);

/// Writes one HTML file: bytes by class over time as stacked areas, the phases below, the peak's
/// `most` largest labels, and both as tables. It needs no network and no script, is well-formed
/// XML, and follows the reader's choice of light or dark. Written whole or not at all, and over
/// nothing but an earlier picture. Throws zero::Error naming the path.
void save_memory_picture(const MemorySeries& series, std::int64_t most, const std::string& path);

}  // namespace zero
