// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/model_folder.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "architecture/family.h"
#include "base/error.h"
#include "base/message_text.h"
#include "inference/model_weights.h"
#include "weights/hf/config.h"
#include "weights/model_files.h"

namespace zero {
namespace {

WeightFormat format_of(const HfModel& model, const std::string& folder) {
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4, WeightFormat::q4}) {
    if (model.codes == name_of(format)) return format;
  }
  ZERO_CHECK(model.codes.empty(),
             "{}/config.json: quantization_config.format: found \"{}\", expected int8, nf4 or q4",
             folder, printable_line(model.codes));
  return WeightFormat::plain;
}

/// A file must not have the program list millions of layers that it does not hold.
void check_layers(std::span<const SafetensorsReader> files, const std::string& folder,
                  std::int64_t layers) {
  std::size_t tensors = 0;
  for (const SafetensorsReader& file : files) tensors += file.header().tensors.size();
  ZERO_CHECK(layers <= static_cast<std::int64_t>(tensors),
             "{}: config.json has {} layers, and the files of weights {} tensors; expected several "
             "for each layer",
             folder, layers, tensors);
}

/// A folder of codes whose config.json says nothing of them.
void check_no_codes(std::span<const SafetensorsReader> files, const std::string& folder) {
  for (const SafetensorsReader& file : files) {
    for (const FileTensor& tensor : file.header().tensors) {
      ZERO_CHECK(
          !tensor.name.ends_with("_scale"),
          "{}/config.json: has no quantization_config, and tensor {} of the files of weights "
          "holds scales of codes; expected the config.json that was written beside them (as by "
          "zero_generate --save-quantized)",
          folder, printable_line(tensor.name));
    }
  }
}

}  // namespace

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

WeightFormat stored_format(const std::string& folder) {
  return format_of(read_hf_model(folder), folder);
}

ModelFolder::ModelFolder(const std::string& folder) : folder_(folder) {
  const HfModel model = read_hf_model(folder);
  shape_ = model.shape;
  format_ = format_of(model, folder);
  std::vector<SafetensorsReader> files = open_weights(folder);
  check_layers(files, folder, shape_.layers);
  if (format_ == WeightFormat::plain) {
    check_no_codes(files, folder);
    files_.emplace<WeightFiles>(std::move(files), shape_);
  } else {
    files_.emplace<QuantizedFiles>(std::move(files), shape_, format_);
  }
}

void ModelFolder::check_format(WeightFormat wanted, MatrixRoles keep) const {
  ZERO_CHECK(format_ == WeightFormat::plain || keep.empty(),
             "{}: its matrices are codes of {}, and {} are to stay as they were before; expected "
             "the folder from which the codes were made, or none to keep",
             folder_, name_of(format_), keep.text());
  if (format_ == WeightFormat::plain || format_ == wanted) return;
  fail(
      "{}: its matrices are codes of {}, of which no weights of {} can be made; expected --weights "
      "{}, or none, or the folder from which the codes were made",
      folder_, name_of(format_), name_of(wanted), name_of(format_));
}

ModelWeights::Source ModelFolder::source() const {
  if (const auto* plain = std::get_if<WeightFiles>(&files_)) {
    return {[plain](std::size_t tensor, std::int64_t begin, std::span<float> values) {
      plain->read(tensor, begin, values);
    }};
  }
  const auto& codes = std::get<QuantizedFiles>(files_);
  return {[&codes](std::size_t tensor, std::int64_t begin, std::span<float> values) {
            codes.read(tensor, begin, values);
          },
          [&codes](std::size_t tensor, const TensorPart& part, const WeightShape& shape,
                   std::int64_t first, std::int64_t count) {
            return codes.read_codes(tensor, part, shape, first, count);
          }};
}

}  // namespace zero
