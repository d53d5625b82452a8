// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/quantized_files.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/half.h"
#include "base/message_text.h"

namespace zero {
namespace {

FileType scale_type(WeightFormat format) {
  return format == WeightFormat::int8 ? FileType::f32
         : format == WeightFormat::q4 ? FileType::f16
                                      : FileType::u8;
}

using Sources = std::map<std::string_view, FileSource>;

/// Takes the tensor out of those that were found.
FileSource take(Sources& found, const std::string& file, const std::string& name,
                const std::vector<std::int64_t>& shape) {
  const auto at = found.find(name);
  ZERO_CHECK(at != found.end(), "{}: tensor \"{}\": found none of that name, expected shape {}",
             file, name, shape_text(shape));
  const FileSource source = at->second;
  found.erase(at);
  return source;
}

void check_shape(const FileSource& source, const std::vector<std::int64_t>& shape) {
  ZERO_CHECK(source.tensor->shape == shape, "{}: found shape {}, expected {}", place_of(source),
             shape_text(source.tensor->shape), shape_text(shape));
}

FileSource take(Sources& found, const std::string& file, const FileTensor& expected) {
  const FileSource source = take(found, file, expected.name, expected.shape);
  ZERO_CHECK(source.tensor->type == expected.type, "{}: found dtype {}, expected {}",
             place_of(source), name_of(source.tensor->type), name_of(expected.type));
  check_shape(source, expected.shape);
  return source;
}

/// Ranges that follow each other are one.
IndexRanges merged(const IndexRanges& ranges) {
  IndexRanges all;
  for (const TensorSlice::Range& range : ranges) {
    if (!all.empty() && all.back().begin + all.back().count == range.begin) {
      all.back().count += range.count;
    } else {
      all.push_back(range);
    }
  }
  return all;
}

const IndexRanges& inputs_of(const TensorPart& part, const WeightShape& shape) {
  return shape.layout == WeightLayout::in_out ? part.rows : part.columns;
}
const IndexRanges& outputs_of(const TensorPart& part, const WeightShape& shape) {
  return shape.layout == WeightLayout::in_out ? part.columns : part.rows;
}

/// Whether groups and ranges of scales of the part are some of the whole's.
bool holds_groups(const TensorPart& part, const WeightShape& shape) {
  if (shape.format == WeightFormat::int8) return true;  // a scale has all inputs
  const bool nf4 = shape.format == WeightFormat::nf4;
  const IndexRanges inputs = inputs_of(part, shape);
  const std::int64_t unit = scale_group(shape.format) * (nf4 ? kGroupsOfRange : 1);
  if (inputs.size() != 1 || inputs[0].begin % unit != 0) return false;
  const IndexRanges& outputs = outputs_of(part, shape);
  return !nf4 || std::ranges::all_of(outputs, [&](const TensorSlice::Range& range) {
    const bool last = &range == &outputs.back();
    return range.begin % kTile == 0 && (last || range.count % kTile == 0);
  });
}

/// Calls visit(row, bytes) for rows of a tensor, each of so many bytes; about a MiB is read at a
/// time.
template <typename Visit>
void for_each_row(const FileSource& from, std::int64_t bytes, const IndexRanges& rows,
                  const Visit& visit) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 20;
  const std::int64_t most = std::max<std::int64_t>(1, kBytes / bytes);
  std::vector<std::byte> piece;
  for (const TensorSlice::Range& range : rows) {
    for (std::int64_t row = range.begin; row < range.begin + range.count; row += most) {
      const std::int64_t count = std::min(most, range.begin + range.count - row);
      piece.resize(static_cast<std::size_t>(count * bytes));
      from.file->read(*from.tensor, row * bytes / size_of(from.tensor->type), piece);
      for (std::int64_t i = 0; i < count; ++i) visit(row + i, piece.data() + i * bytes);
    }
  }
}

std::string text_of(std::int8_t code) { return std::to_string(code); }
std::string text_of(std::uint8_t code) { return std::to_string(code); }
std::string text_of(float scale) { return fmt::format("{}", scale); }
std::string text_of(float16 scale) { return text_of(to_float(scale)); }
std::string text_of(const ScaleRange& range) {
  return fmt::format("{} and {}", range.least, range.step);
}

// What values of files must be.
struct Code8 {
  using Value = std::int8_t;
  static constexpr std::string_view kExpected = "-127 to 127";
  static bool holds(Value code) { return code != -128; }
};
struct AnyCode {
  using Value = std::uint8_t;
  static constexpr std::string_view kExpected = "any";
  static bool holds(Value /*code*/) { return true; }
};
struct Scale {
  using Value = float;
  static constexpr std::string_view kExpected = "0 to 2.679e36, so that codes stand for numbers";
  static bool holds(Value scale) {
    return scale >= 0 && scale <= std::numeric_limits<float>::max() / 127;
  }
};
struct Scale16 {
  using Value = float16;
  static constexpr std::string_view kExpected = "a finite number";
  static bool holds(Value scale) { return std::isfinite(to_float(scale)); }
};
struct LeastAndStep {
  using Value = ScaleRange;
  static constexpr std::string_view kExpected = "the least scale and a step, numbers of at least 0";
  static bool holds(const Value& range) {
    return range.least >= 0 && range.step >= 0 && std::isfinite(range.step * 255 + range.least);
  }
};

/// Copies elements of some rows and columns of a tensor.
template <typename Rule>
void read_part(const FileSource& from, const TensorPart& part, void* to) {
  using Value = typename Rule::Value;
  auto* next = static_cast<Value*>(to);
  const auto bytes = part.all_columns * static_cast<std::int64_t>(sizeof(Value));
  for_each_row(from, bytes, part.rows, [&](std::int64_t row, const std::byte* held) {
    const auto* const values = reinterpret_cast<const Value*>(held);
    for (const TensorSlice::Range& range : part.columns) {
      const Value* const first = values + range.begin;
      int bad = 0;
      for (std::int64_t i = 0; i < range.count; ++i) bad |= Rule::holds(first[i]) ? 0 : 1;
      next = std::copy_n(first, range.count, next);
      if (bad == 0) continue;
      const Value* const found = std::find_if_not(first, first + range.count, Rule::holds);
      fail("{}: found {} at [{}, {}], expected {}", place_of(from), text_of(*found), row,
           found - values, Rule::kExpected);
    }
  });
}

/// The same of codes of 4 bits.
void read_halves(const FileSource& from, const TensorPart& part, std::uint8_t* to) {
  const std::int64_t bytes = div_ceil(part.all_columns, 2);
  for_each_row(from, bytes, part.rows, [&](std::int64_t row, const std::byte* held) {
    const auto both = [&](std::int64_t i) { return static_cast<unsigned>(held[i / 2]); };
    ZERO_CHECK(part.all_columns % 2 == 0 || both(part.all_columns) < 16,
               "{}: found code {} behind the last one of row {}, expected 0: a row has {}",
               place_of(from), both(part.all_columns) >> 4U, row, part.all_columns);
    for (const TensorSlice::Range& range : part.columns) {
      for (std::int64_t i = range.begin; i < range.begin + range.count; ++i) {
        *to++ = static_cast<std::uint8_t>(i % 2 == 0 ? both(i) & 15U : both(i) >> 4U);
      }
    }
  });
}

float level_of(WeightFormat format, std::uint8_t code) {
  if (format == WeightFormat::int8) return static_cast<std::int8_t>(code);
  return to_float(code_levels(format)[code]);
}

}  // namespace

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

QuantizedFiles::QuantizedFiles(std::vector<SafetensorsReader> files, const DecoderShape& shape,
                               WeightFormat format)
    : files_(std::move(files)), format_(format) {
  Sources found;
  for (const SafetensorsReader& file : files_) {
    for (const FileTensor& tensor : file.header().tensors) {
      const auto [at, added] = found.emplace(tensor.name, FileSource{&file, &tensor});
      ZERO_CHECK(added, "{}: found in {} too, expected in one file", place_of(at->second),
                 file.path());
    }
  }
  const std::string file = files_.empty() ? "" : files_[0].path();
  for (DecoderParameter& parameter : all_parameters(shape)) {
    Held held{.parameter = std::move(parameter)};
    if (held.parameter.is_matrix()) {
      const std::vector<FileTensor> tensors = quantized_tensors(held.parameter, format);
      held.elements = take(found, file, tensors[0]);
      held.scales = take(found, file, tensors[1]);
      if (tensors.size() > 2) held.ranges = take(found, file, tensors[2]);
    } else {
      held.elements = take(found, file, held.parameter.name, held.parameter.shape());
      const FileType type = held.elements.tensor->type;
      ZERO_CHECK(type == FileType::f32 || type == FileType::bf16 || type == FileType::f16,
                 "{}: found dtype {}, expected F32, BF16 or F16", place_of(held.elements),
                 name_of(type));
      check_shape(held.elements, held.parameter.shape());
    }
    held_.push_back(std::move(held));
  }
  ZERO_CHECK(found.empty(), "{}: expected no tensor of that name: the model has {} others",
             place_of(found.begin()->second), held_.size());
}

std::optional<QuantizedRows> QuantizedFiles::read_codes(std::size_t tensor, const TensorPart& part,
                                                        const WeightShape& shape,
                                                        std::int64_t first,
                                                        std::int64_t count) const {
  const TensorPart whole{merged(part.rows), merged(part.columns), part.all_columns};
  if (!holds_groups(whole, shape)) return std::nullopt;
  const Held& held = held_[tensor];
  QuantizedRows rows(shape, first, count);
  const IndexRanges of_rows = part_of(whole.rows, first, count);
  const TensorPart codes{of_rows, whole.columns, whole.all_columns};
  const IndexRanges& outputs = rows.by_depth() ? whole.columns : of_rows;
  const std::int64_t group = rows.group_of(inputs_of(whole, shape)[0].begin);
  // Of a tensor with `groups` where the matrix has inputs, of which `all` are there.
  const auto by_groups = [&](TensorSlice::Range groups, std::int64_t all, IndexRanges columns,
                             std::int64_t all_columns) {
    return rows.by_depth() ? TensorPart{{groups}, std::move(columns), all_columns}
                           : TensorPart{std::move(columns), {groups}, all};
  };
  const std::int64_t groups = count_groups(format_, held.parameter.in);
  const TensorPart scales =
      by_groups({group + rows.group_begin(), rows.group_end() - rows.group_begin()}, groups,
                outputs, held.parameter.out);
  if (format_ == WeightFormat::int8) {
    read_part<Code8>(held.elements, codes, rows.codes.data());
    read_part<Scale>(held.scales, scales, rows.scales.data());
    return rows;
  }
  read_halves(held.elements, codes, rows.codes.data());
  if (format_ == WeightFormat::q4) {
    read_part<Scale16>(held.scales, scales, rows.scales.data());
    return rows;
  }
  read_part<AnyCode>(held.scales, scales, rows.scales.data());
  IndexRanges blocks;
  for (const TensorSlice::Range& range : outputs) {
    blocks.push_back({range.begin / kTile, div_ceil(range.count, kTile)});
  }
  const TensorPart ranges =
      by_groups({group / kGroupsOfRange + rows.scale_block_begin(),
                 rows.scale_block_end() - rows.scale_block_begin()},
                div_ceil(groups, kGroupsOfRange), blocks, div_ceil(held.parameter.out, kTile));
  read_part<LeastAndStep>(held.ranges, ranges, rows.ranges.data());
  return rows;
}

void QuantizedFiles::read(std::size_t tensor, std::int64_t begin, std::span<float> values) const {
  const Held& held = held_[tensor];
  if (!held.parameter.is_matrix()) {
    const FileSource& from = held.elements;
    std::vector<std::byte> bytes(values.size() *
                                 static_cast<std::size_t>(size_of(from.tensor->type)));
    from.file->read(*from.tensor, begin, bytes);
    return decode(from.tensor->type, bytes, values);
  }
  const WeightShape shape = whole_shape(held.parameter, format_);
  const std::int64_t columns = shape.file_columns();
  const std::int64_t first = begin / columns;
  const std::int64_t end = div_ceil(begin + std::ssize(values), columns);
  // Codes come with whole groups.
  const std::int64_t step = pack_rows(shape);
  const std::int64_t from = first / step * step;
  const std::int64_t count = std::min(round_up(end, step), shape.file_rows()) - from;
  const QuantizedRows rows =
      *read_codes(tensor, held.parameter.part(0, held.parameter.out), shape, from, count);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t element = begin + static_cast<std::int64_t>(i);
    std::int64_t depth = element / columns;
    std::int64_t column = element % columns;
    if (!rows.by_depth()) std::swap(depth, column);
    values[i] = level_of(format_, rows.codes[rows.element_at(depth, column)]) *
                rows.scale(rows.group_of(depth), column);
  }
}

}  // namespace zero
