// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_split.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "checkpoint/file_header.h"

namespace zero {
namespace {

/// Elements [begin, end) of `whole`, under another name and shape.
LogicalTensor cut(const LogicalTensor& whole, std::int64_t begin, std::int64_t end) {
  LogicalTensor piece{.name = {},
                      .shape = whole.shape,
                      .kind = whole.kind,
                      .trainable = whole.trainable,
                      .parts = {}};
  for (const LogicalTensor::Part& part : whole.parts) {
    const std::int64_t first = std::max(begin, part.begin);
    const std::int64_t last = std::min(end, part.begin + part.values.count());
    if (first >= last) continue;
    piece.parts.push_back(
        {first - begin, part.values.slice(first - part.begin, last - first), part.primary});
  }
  return piece;
}

void split(const LogicalTensor& tensor, const NameMap::Split& names,
           std::vector<LogicalTensor>& pieces) {
  const std::int64_t rows =
      std::accumulate(names.pieces.begin(), names.pieces.end(), std::int64_t{0},
                      [](std::int64_t sum, const auto& piece) { return sum + piece.rows; });
  ZERO_CHECK(!tensor.shape.empty() && tensor.shape[0] == rows,
             "tensor \"{}\" of shape {} is split into {} rows; expected as many as it has",
             tensor.name, shape_text(tensor.shape), rows);
  const std::int64_t row = std::accumulate(tensor.shape.begin() + 1, tensor.shape.end(),
                                           std::int64_t{1}, std::multiplies<>());
  const std::size_t at = tensor.name.find("." + names.component + ".") + 1;
  std::int64_t begin = 0;
  for (const NameMap::Split::Piece& of : names.pieces) {
    LogicalTensor piece = cut(tensor, begin * row, (begin + of.rows) * row);
    piece.name = tensor.name;
    piece.name.replace(at, names.component.size(), of.name);
    piece.shape[0] = of.rows;
    pieces.push_back(std::move(piece));
    begin += of.rows;
  }
}

}  // namespace

std::vector<LogicalTensor> split_tensors(std::span<const LogicalTensor> tensors,
                                         const NameMap& names) {
  std::vector<LogicalTensor> result;
  for (const LogicalTensor& tensor : tensors) {
    const auto found =
        std::find_if(names.splits.begin(), names.splits.end(), [&](const NameMap::Split& each) {
          return tensor.name.find("." + each.component + ".") != std::string::npos;
        });
    if (found == names.splits.end()) {
      result.push_back(tensor);
    } else {
      split(tensor, *found, result);
    }
  }
  return result;
}

}  // namespace zero
