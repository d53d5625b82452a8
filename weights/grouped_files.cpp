// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/grouped_files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "architecture/family.h"
#include "base/checked_math.h"
#include "base/error.h"
#include "base/half.h"
#include "base/message_text.h"
#include "weights/quantized_files.h"

namespace zero {
namespace {

using Range = TensorSlice::Range;

constexpr std::int64_t kCodesOfWord = 8;
constexpr std::uint8_t kSymmetricZero = 8;
constexpr std::string_view kWeight = "weight";
// The output whose code each half byte of AWQ's words holds, from the low one up.
constexpr std::array<std::int64_t, kCodesOfWord> kAwqOrder{0, 2, 4, 6, 1, 3, 5, 7};

std::uint8_t code_at(std::uint32_t word, std::int64_t place) {
  return static_cast<std::uint8_t>(word >> (4 * place) & 15U);
}

/// Calls visit(row, values) for rows of a tensor (rows, columns), with `columns` of each. Whole
/// rows are read, about a MiB at a time, where much of them is wanted.
template <typename T, typename Visit>
void for_rows(const FileSource& from, Range rows, Range columns, const Visit& visit) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 20;
  constexpr std::int64_t kMuch = 4;  // a fourth
  const std::int64_t width = from.tensor->shape[1];
  const bool whole = columns.count * kMuch >= width;
  const Range read = whole ? Range{0, width} : columns;
  const auto bytes = static_cast<std::int64_t>(sizeof(T)) * width;
  const std::int64_t most = whole ? std::max<std::int64_t>(1, kBytes / bytes) : 1;
  std::vector<T> values;
  for (std::int64_t row = 0; row < rows.count; row += most) {
    const std::int64_t count = std::min(most, rows.count - row);
    values.resize(static_cast<std::size_t>(count * read.count));
    from.file->read(*from.tensor, (rows.begin + row) * width + read.begin,
                    std::as_writable_bytes(std::span(values)));
    for (std::int64_t i = 0; i < count; ++i) {
      visit(rows.begin + row + i, values.data() + i * read.count + columns.begin - read.begin);
    }
  }
}

/// The words that hold outputs, in rows of words of eight.
Range words_of(Range outputs) {
  const std::int64_t first = outputs.begin / kCodesOfWord;
  return {first, div_ceil(outputs.begin + outputs.count, kCodesOfWord) - first};
}

/// Calls put(output, code), output counted from `outputs` on, for those in words_of(outputs).
template <typename Put>
void for_outputs(const std::uint32_t* words, Range outputs, bool awq, const Put& put) {
  const Range all = words_of(outputs);
  for (std::int64_t word = 0; word < all.count; ++word) {
    for (std::int64_t place = 0; place < kCodesOfWord; ++place) {
      const std::int64_t output = (all.begin + word) * kCodesOfWord - outputs.begin +
                                  (awq ? kAwqOrder[static_cast<std::size_t>(place)] : place);
      if (output >= 0 && output < outputs.count) put(output, code_at(words[word], place));
    }
  }
}

/// The inputs of rows of a part; the part has consecutive ones.
Range inputs_of(const IndexRanges& ranges, std::string_view name) {
  Range all = ranges.empty() ? Range{} : ranges[0];
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    ZERO_CHECK(all.begin + all.count == ranges[i].begin,
               "tensor \"{}\": found inputs [{}, {}) and others from {} on, expected consecutive "
               "ones",
               name, all.begin, all.begin + all.count, ranges[i].begin);
    all.count += ranges[i].count;
  }
  return all;
}

}  // namespace

std::vector<GroupedFiles::Matrix> GroupedFiles::matrices(const DecoderShape& shape) {
  const DecoderParameters parameters(DecoderSplit::of(shape, 0, 1));
  std::vector<Matrix> all;
  for (const DecoderParameter& each : parameters.all) all.push_back({each});
  const NameMap names = file_names(shape);
  for (const LayoutTensor& each : tensors_of_files(shape)) {
    Matrix& matrix = all[each.source];
    const bool table = each.source == parameters.embedding || each.source == parameters.head;
    if (!matrix.parameter.is_matrix() || table) continue;
    Piece piece;
    piece.name = each.name.substr(0, each.name.size() - kWeight.size());
    piece.in = matrix.parameter.in;
    piece.bare = names.bare(piece.name);
    if (matrix.parameter.layout == WeightLayout::out_in) {
      piece.outputs = {each.source_begin / piece.in, each.shape[0]};
    } else {
      piece.outputs = {0, each.shape[1]};
    }
    matrix.pieces.push_back(std::move(piece));
  }
  return all;
}

GroupedFiles::GroupedFiles(std::vector<SafetensorsReader> files, const DecoderShape& shape,
                           const GroupQuantization& quantization)
    : quantization_(quantization),
      matrices_(matrices(shape)),
      plain_(std::move(files), shape,
             {[this](std::size_t parameter) { return !matrices_[parameter].pieces.empty(); },
              [this](std::string_view bare_name, const FileSource& tensor) {
                return take(bare_name, tensor);
              }}) {
  for (const Matrix& matrix : matrices_) {
    for (const Piece& piece : matrix.pieces) check(piece);
  }
}

bool GroupedFiles::take(std::string_view bare_name, const FileSource& tensor) {
  const std::string_view last = bare_name.substr(bare_name.rfind('.') + 1);
  FileSource Piece::*const role = last == "qweight"  ? &Piece::codes
                                  : last == "qzeros" ? &Piece::zeros
                                  : last == "scales" ? &Piece::scales
                                  : last == "g_idx"  ? &Piece::order
                                  : last == "bias"   ? &Piece::bias
                                                     : nullptr;
  if (role == nullptr && last != kWeight) return false;
  const std::string_view name = bare_name.substr(0, bare_name.size() - last.size());
  for (Matrix& matrix : matrices_) {
    for (Piece& piece : matrix.pieces) {
      if (piece.bare != name) continue;
      ZERO_CHECK(role != nullptr,
                 "{}: found elements, expected codes, {}qweight: every matrix of a block is in "
                 "codes; modules_to_not_convert may leave out the head and the embedding",
                 place_of(tensor), printable_line(name));
      FileSource& place = piece.*role;
      ZERO_CHECK(place.tensor == nullptr, "{}: found in {} too, expected in one file",
                 place_of(tensor), place.file->path());
      place = tensor;
      return true;
    }
  }
  return false;
}

void GroupedFiles::check_tensor(const Piece& piece, const FileSource& found,
                                const FileTensor& expected) const {
  ZERO_CHECK(found.tensor != nullptr,
             "{}: tensor \"{}{}\": found none of that name, expected {} {}, as {} has it",
             plain_.files().empty() ? "" : plain_.files()[0].path(), piece.name, expected.name,
             name_of(expected.type), shape_text(expected.shape), quantization_.method());
  ZERO_CHECK(found.tensor->type == expected.type, "{}: found dtype {}, expected {}",
             place_of(found), name_of(found.tensor->type), name_of(expected.type));
  ZERO_CHECK(found.tensor->shape == expected.shape,
             "{}: found shape {}, expected {} of {} inputs, "
             "{} outputs and groups of {}",
             place_of(found), shape_text(found.tensor->shape), shape_text(expected.shape), piece.in,
             piece.outputs.count, quantization_.group == 0 ? piece.in : quantization_.group);
}

void GroupedFiles::check(const Piece& piece) const {
  const std::int64_t out = piece.outputs.count;
  ZERO_CHECK((awq() || piece.in % kCodesOfWord == 0) && out % kCodesOfWord == 0,
             "tensor \"{}{}\": found {} inputs and {} outputs, expected multiples of {}: as many "
             "codes have a word",
             piece.name, kWeight, piece.in, out, kCodesOfWord);
  const std::int64_t groups =
      quantization_.group == 0 ? 1 : div_ceil(piece.in, quantization_.group);
  check_tensor(piece, piece.codes,
               {.name = "qweight",
                .type = FileType::i32,
                .shape = awq() ? std::vector{piece.in, out / kCodesOfWord}
                               : std::vector{piece.in / kCodesOfWord, out}});
  const FileTensor* const scales = piece.scales.tensor;
  const bool others =
      scales != nullptr && (scales->type == FileType::bf16 || scales->type == FileType::f32);
  check_tensor(
      piece, piece.scales,
      {.name = "scales", .type = others ? scales->type : FileType::f16, .shape = {groups, out}});
  check_tensor(piece, piece.zeros,
               {.name = "qzeros", .type = FileType::i32, .shape = {groups, out / kCodesOfWord}});
  check_order(piece);
  if (piece.bias.tensor == nullptr) return;
  // Early programs of GPTQ wrote one beside every matrix.
  ZERO_CHECK(piece.bias.tensor->shape == std::vector{out}, "{}: found shape {}, expected {}",
             place_of(piece.bias), shape_text(piece.bias.tensor->shape),
             shape_text(std::vector{out}));
  std::vector<float> values(static_cast<std::size_t>(out));
  std::vector<std::byte> bytes(static_cast<std::size_t>(out * size_of(piece.bias.tensor->type)));
  piece.bias.file->read(*piece.bias.tensor, 0, bytes);
  decode(piece.bias.tensor->type, bytes, values);
  const auto found = std::ranges::find_if(values, [](float value) { return value != 0; });
  ZERO_CHECK(found == values.end(), "{}: found {} at [{}], expected 0: the model has no bias there",
             place_of(piece.bias), *found, found - values.begin());
}

void GroupedFiles::check_order(const Piece& piece) const {
  const bool one_group = quantization_.group == 0 || piece.in <= quantization_.group;
  if (piece.order.tensor == nullptr && (!quantization_.sorted || one_group)) return;
  ZERO_CHECK(
      piece.order.tensor != nullptr,
      "{}: tensor \"{}g_idx\": found none of that name, and desc_act true in config.json: the "
      "order of its groups of inputs is not known; have the codes made with desc_act false, "
      "or take the folder from which these were made, and --weights int8, nf4 or q4",
      piece.codes.file->path(), piece.name);
  check_tensor(piece, piece.order, {.name = "g_idx", .type = FileType::i32, .shape = {piece.in}});
  std::vector<std::int32_t> groups(static_cast<std::size_t>(piece.in));
  piece.order.file->read(*piece.order.tensor, 0, std::as_writable_bytes(std::span(groups)));
  for (std::int64_t i = 0; i < piece.in; ++i) {
    const std::int64_t expected = quantization_.group == 0 ? 0 : i / quantization_.group;
    const std::int32_t found = groups[static_cast<std::size_t>(i)];
    ZERO_CHECK(found == expected,
               "{}: found group {} of input {}, expected {}: groups of inputs in another order "
               "(desc_act) are not read; have the codes made with desc_act false or static_groups "
               "true, or take the folder from which these were made, and --weights int8, nf4 or q4",
               place_of(piece.order), found, i, expected);
  }
}

std::int64_t GroupedFiles::group_of(const QuantizedRows& rows, std::int64_t group,
                                    std::int64_t input) const {
  if (quantization_.group == 0) return 0;
  return (input + group * scale_group(rows.shape) - rows.depth_begin()) / quantization_.group;
}

// `input`: of the rows' first depth, here and below.
void GroupedFiles::fill_codes(const Outputs& of, std::int64_t input, QuantizedRows& rows) const {
  const Range inputs{input, rows.depth_end() - rows.depth_begin()};
  std::uint8_t* const to = rows.codes.data() + rows.element_at(rows.depth_begin(), of.column);
  const std::int64_t down = rows.by_depth() ? rows.columns() : 1;  // to the next input
  const std::int64_t across = rows.by_depth() ? 1 : inputs.count;  // to the next output
  if (awq()) {
    for_rows<std::uint32_t>(of.piece.codes, inputs, words_of(of.range),
                            [&](std::int64_t row, const std::uint32_t* words) {
                              std::uint8_t* const codes = to + (row - input) * down;
                              for_outputs(words, of.range, true,
                                          [&](std::int64_t output, std::uint8_t code) {
                                            codes[output * across] = code;
                                          });
                            });
    return;
  }
  for_rows<std::uint32_t>(of.piece.codes, words_of(inputs), of.range,
                          [&](std::int64_t row, const std::uint32_t* words) {
                            const std::int64_t first = row * kCodesOfWord;
                            const std::int64_t begin = std::max(first, inputs.begin);
                            const std::int64_t end =
                                std::min(first + kCodesOfWord, inputs.begin + inputs.count);
                            for (std::int64_t output = 0; output < of.range.count; ++output) {
                              std::uint8_t* const codes = to + output * across;
                              for (std::int64_t at = begin; at < end; ++at) {
                                codes[(at - input) * down] = code_at(words[output], at - first);
                              }
                            }
                          });
}

// Programs of GPTQ store them in the model's dtype.
void GroupedFiles::fill_scales(const Outputs& of, std::int64_t input, QuantizedRows& rows) const {
  const FileSource& from = of.piece.scales;
  std::vector<float> values(static_cast<std::size_t>(of.range.count));
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(of.range.count * size_of(from.tensor->type)));
  for (std::int64_t group = rows.group_begin(); group < rows.group_end(); ++group) {
    const std::int64_t row = group_of(rows, group, input);
    from.file->read(*from.tensor, row * of.piece.outputs.count + of.range.begin, bytes);
    decode(from.tensor->type, bytes, values);
    for (std::int64_t output = 0; output < of.range.count; ++output) {
      const float value = values[static_cast<std::size_t>(output)];
      const float16 scale = to_float16(value);
      ZERO_CHECK(std::isfinite(value) && to_float(scale) == value,
                 "{}: found {} at [{}, {}], expected a finite number that fp16 holds",
                 place_of(from), value, row, of.range.begin + output);
      std::memcpy(rows.scales.data() + rows.scale_at(group, of.column + output), &scale,
                  sizeof scale);
    }
  }
}

void GroupedFiles::fill_zeros(const Outputs& of, std::int64_t input, QuantizedRows& rows) const {
  // Of the whole word, as the programs that write and read them count: less one borrows.
  const std::uint32_t ones =
      quantization_.packing == GroupQuantization::Packing::gptq ? 0x11111111U : 0U;
  const Range words = words_of(of.range);
  std::vector<std::uint32_t> zeros(static_cast<std::size_t>(words.count));
  for (std::int64_t group = rows.group_begin(); group < rows.group_end(); ++group) {
    const std::int64_t row = group_of(rows, group, input);
    for_rows<std::uint32_t>(of.piece.zeros, {row, 1}, words,
                            [&](std::int64_t /*row*/, const std::uint32_t* found) {
                              std::transform(found, found + words.count, zeros.begin(),
                                             [&](std::uint32_t word) { return word + ones; });
                            });
    for_outputs(zeros.data(), of.range, awq(), [&](std::int64_t output, std::uint8_t zero) {
      ZERO_CHECK(!quantization_.symmetric || zero == kSymmetricZero,
                 "{}: found zero point {} at [{}, {}], expected {}: config.json says that codes "
                 "are symmetric{}",
                 place_of(of.piece.zeros), zero, row, of.range.begin + output, kSymmetricZero,
                 awq() ? " (zero_point)" : " (sym); is checkpoint_format gptq or gptq_v2?");
      rows.zeros[rows.zero_at(group, of.column + output)] = zero;
    });
  }
}

std::optional<QuantizedRows> GroupedFiles::read_codes(std::size_t tensor, const TensorPart& part,
                                                      const WeightShape& shape, std::int64_t first,
                                                      std::int64_t count) const {
  const Matrix& matrix = matrices_[tensor];
  if (matrix.pieces.empty()) return std::nullopt;
  QuantizedRows rows(shape, first, count);
  const IndexRanges of_rows = part_of(part.rows, first, count);
  const IndexRanges& outputs = rows.by_depth() ? part.columns : of_rows;
  const Range inputs = inputs_of(rows.by_depth() ? of_rows : part.columns, matrix.parameter.name);
  const std::int64_t group = scale_group(shape);
  const std::int64_t of_files = quantization_.group;
  ZERO_CHECK(of_files == 0 || (group == 0 ? inputs.begin / of_files ==
                                                (inputs.begin + inputs.count - 1) / of_files
                                          : of_files % group == 0 && inputs.begin % group == 0),
             "tensor \"{}\": inputs from {} on in groups of {}: found groups of {} in files, "
             "expected that each group lies in one of them",
             matrix.parameter.name, inputs.begin, group, of_files);
  std::int64_t column = rows.column_begin();
  for (const Range& range : outputs) {
    for (const Piece& piece : matrix.pieces) {
      const std::int64_t begin = std::max(range.begin, piece.outputs.begin);
      const std::int64_t end =
          std::min(range.begin + range.count, piece.outputs.begin + piece.outputs.count);
      if (begin >= end) continue;
      const Outputs of{
          piece, {begin - piece.outputs.begin, end - begin}, column + begin - range.begin};
      fill_codes(of, inputs.begin, rows);
      fill_scales(of, inputs.begin, rows);
      fill_zeros(of, inputs.begin, rows);
    }
    column += range.count;
  }
  return rows;
}

void GroupedFiles::read(std::size_t tensor, std::int64_t begin, std::span<float> values) const {
  const Matrix& matrix = matrices_[tensor];
  if (matrix.pieces.empty()) return plain_.read(tensor, begin, values);
  WeightShape shape = whole_shape(matrix.parameter, WeightFormat::u4);
  shape.group = quantization_.group;
  const std::int64_t columns = shape.file_columns();
  const std::int64_t step = pack_rows(shape);  // codes come with whole groups
  const std::int64_t from = begin / columns / step * step;
  const std::int64_t end = div_ceil(begin + std::ssize(values), columns);
  const std::int64_t count = std::min(round_up(end, step), shape.file_rows()) - from;
  const QuantizedRows rows =
      *read_codes(tensor, matrix.parameter.part(0, matrix.parameter.out), shape, from, count);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t element = begin + static_cast<std::int64_t>(i);
    std::int64_t depth = element / columns;
    std::int64_t column = element % columns;
    if (!rows.by_depth()) std::swap(depth, column);
    const std::int64_t group = rows.group_of(depth);
    const int level = int{rows.codes[rows.element_at(depth, column)]} - rows.zero(group, column);
    values[i] = static_cast<float>(level) * rows.scale(group, column);
  }
}

}  // namespace zero
