// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/hf/tensor_split.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "weights/hf/file_header.h"

namespace zero {
namespace {

void split(const LogicalTensor& tensor, const NameMap::Split& names,
           std::vector<LogicalTensor>& pieces) {
  std::int64_t rows = 0;
  for (const NameMap::Split::Piece& piece : names.pieces) rows += piece.rows;
  ZERO_CHECK(!tensor.shape.empty() && tensor.shape[0] == rows,
             "tensor \"{}\" of shape {} is split into {} rows; expected as many as it has",
             tensor.name, shape_text(tensor.shape), rows);
  const std::size_t at = tensor.name.find("." + names.component + ".") + 1;
  for (const NameMap::Split::Piece& of : names.pieces) {
    LogicalTensor piece = tensor;
    piece.name.replace(at, names.component.size(), of.name);
    piece.shape[0] = of.rows;
    pieces.push_back(std::move(piece));
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
