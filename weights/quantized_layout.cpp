// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/quantized_layout.h"

#include "ops/quantized_rows.h"

namespace zero {
namespace {

FileType scale_type(WeightFormat format) {
  return format == WeightFormat::int8 ? FileType::f32
         : format == WeightFormat::q4 ? FileType::f16
                                      : FileType::u8;
}

}  // namespace

std::vector<DecoderParameter> all_parameters(const DecoderShape& shape) {
  return DecoderParameters(DecoderSplit::of(shape, 0, 1)).all;
}

WeightShape whole_shape(const DecoderParameter& matrix, WeightFormat format) {
  return {matrix.in, matrix.out, matrix.layout, DType::fp32, format};
}

std::int64_t code_row_bytes(const WeightShape& shape) {
  const std::int64_t codes = shape.file_columns();
  return shape.format == WeightFormat::int8 ? codes : div_ceil(codes, 2);
}

std::vector<FileTensor> quantized_tensors(const DecoderParameter& matrix, WeightFormat format) {
  const WeightShape shape = whole_shape(matrix, format);
  const std::int64_t groups = count_groups(format, shape.in);
  // In the order of the tensor's dimensions.
  const auto ordered = [&](std::int64_t inputs, std::int64_t outputs) {
    return shape.layout == WeightLayout::in_out ? std::vector{inputs, outputs}
                                                : std::vector{outputs, inputs};
  };
  const bool int8 = format == WeightFormat::int8;
  std::vector<FileTensor> tensors{
      {.name = matrix.name,
       .type = int8 ? FileType::i8 : FileType::u8,
       .shape = {shape.file_rows(), code_row_bytes(shape)}},
      {.name = matrix.name + "_scale",
       .type = scale_type(format),
       .shape = int8 ? std::vector{shape.out} : ordered(groups, shape.out)}};
  if (format == WeightFormat::nf4) {
    std::vector<std::int64_t> ranges =
        ordered(div_ceil(groups, kGroupsOfRange), div_ceil(shape.out, kTile));
    ranges.push_back(2);
    tensors.push_back(
        {.name = matrix.name + "_scale_range", .type = FileType::f32, .shape = std::move(ranges)});
  }
  return tensors;
}

}  // namespace zero
