// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/weight_files.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "architecture/family.h"
#include "inference/model_weights.h"

namespace zero {

WeightFiles::WeightFiles(std::vector<SafetensorsReader> files, const DecoderShape& shape)
    : names_(file_names(shape)), files_(std::move(files)) {
  layout_ = lay_out_checkpoint(ModelWeights::tensors(shape), names_,
                               {.file_bytes = std::numeric_limits<std::int64_t>::max()})
                .tensors();
  match_ = match_files(files_, layout_, names_);
  check_aliases(match_, [&](std::size_t tensor, const FileRange& visit) {
    visit(0, layout_[tensor].count());
  });
}

void WeightFiles::read(std::size_t tensor, std::int64_t begin, std::span<float> values) const {
  const std::int64_t end = begin + static_cast<std::int64_t>(values.size());
  const auto held = [&](std::size_t index, const FileRange& visit) {
    const LayoutTensor& piece = layout_[index];
    if (piece.source != tensor) return;
    const std::int64_t from = std::max(begin, piece.source_begin);
    const std::int64_t to = std::min(end, piece.source_begin + piece.count());
    if (from < to) visit(from - piece.source_begin, to - from);
  };
  read_elements(match_, held, [&](std::size_t index, std::int64_t at, const View& read) {
    const auto from = read.as<const float>();
    std::ranges::copy(from, values.begin() + (layout_[index].source_begin + at - begin));
  });
}

}  // namespace zero
