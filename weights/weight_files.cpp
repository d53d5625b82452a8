// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/weight_files.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "architecture/family.h"
#include "weights/quantized_files.h"

namespace zero {

std::vector<LayoutTensor> tensors_of_files(const DecoderShape& shape) {
  std::vector<LogicalTensor> tensors;
  for (const DecoderParameter& each : all_parameters(shape)) {
    tensors.push_back({.name = each.name, .shape = each.shape()});
  }
  return lay_out_checkpoint(tensors, file_names(shape),
                            {.file_bytes = std::numeric_limits<std::int64_t>::max()})
      .tensors();
}

WeightFiles::WeightFiles(std::vector<SafetensorsReader> files, const DecoderShape& shape)
    : WeightFiles(
          std::move(files), shape,
          {[](std::size_t /*parameter*/) { return false; },
           [](std::string_view /*bare_name*/, const FileSource& /*tensor*/) { return false; }}) {}

WeightFiles::WeightFiles(std::vector<SafetensorsReader> files, const DecoderShape& shape,
                         const Codes& codes)
    : names_(file_names(shape)), files_(std::move(files)), layout_(tensors_of_files(shape)) {
  std::erase_if(layout_, [&](const LayoutTensor& each) { return codes.holds(each.source); });
  match_ = match_files(files_, layout_, names_, codes.takes);
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
