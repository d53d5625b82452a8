// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/model_folder.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/message_text.h"
#include "inference/inference_model.h"
#include "inference/model_weights.h"
#include "weights/hf/config.h"
#include "weights/model_files.h"

namespace zero {
namespace {

WeightFormat format_of(const HfModel& model, const std::string& folder) {
  if (model.groups) return WeightFormat::u4;
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
      ZERO_CHECK(!tensor.name.ends_with(".qweight"),
                 "{}/config.json: has no quantization_config, and tensor {} of the files of "
                 "weights holds codes of GPTQ or AWQ; expected the section: what "
                 "quantize_config.json or quant_config.json says, and \"quant_method\"",
                 folder, printable_line(tensor.name));
      ZERO_CHECK(
          !tensor.name.ends_with("_scale"),
          "{}/config.json: has no quantization_config, and tensor {} of the files of weights "
          "holds scales of codes; expected the config.json that was written beside them (as by "
          "zero_generate --save-quantized)",
          folder, printable_line(tensor.name));
    }
  }
}

void check_formats(const std::string& folder, WeightFormat stored, const std::string& codes,
                   WeightFormat wanted, MatrixRoles keep) {
  ZERO_CHECK(stored == WeightFormat::plain || keep.empty(),
             "{}: its matrices are codes of {}, and {} are to stay as they were before; expected "
             "the folder from which the codes were made, or none to keep",
             folder, codes, keep.text());
  if (stored == wanted) return;
  const std::string folder_of_codes =
      stored == WeightFormat::u4 ? "no --weights" : fmt::format("--weights {}, or none", codes);
  ZERO_CHECK(stored == WeightFormat::plain,
             "{}: its matrices are codes of {}, of which no weights of {} can be made; expected "
             "{}, or the folder from which the codes were made",
             folder, codes, name_of(wanted), folder_of_codes);
  ZERO_CHECK(wanted != WeightFormat::u4,
             "{}: its matrices are elements, of which no weights of u4 can be made; expected "
             "dtype, int8, nf4 or q4, or a folder of GPTQ or AWQ",
             folder);
}

/// Of files that hold codes.
template <typename Files>
ModelWeights::Source source_of(const Files& codes) {
  return {[&codes](std::size_t tensor, std::int64_t begin, std::span<float> values) {
            codes.read(tensor, begin, values);
          },
          [&codes](std::size_t tensor, const TensorPart& part, const WeightShape& shape,
                   std::int64_t first, std::int64_t count) {
            return codes.read_codes(tensor, part, shape, first, count);
          }};
}

}  // namespace

WeightFormat stored_format(const std::string& folder) {
  return format_of(read_hf_model(folder), folder);
}

std::int64_t stored_group(const std::string& folder) {
  const HfModel model = read_hf_model(folder);
  return model.groups ? model.groups->group : 0;
}

void check_stored_format(const std::string& folder, WeightFormat wanted, MatrixRoles keep) {
  const HfModel model = read_hf_model(folder);
  check_formats(folder, format_of(model, folder), model.codes, wanted, keep);
}

ModelFolder::ModelFolder(const std::string& folder) : folder_(folder) {
  const HfModel model = read_hf_model(folder);
  shape_ = model.shape;
  format_ = format_of(model, folder);
  codes_ = model.codes.empty() ? name_of(format_) : model.codes;
  std::vector<SafetensorsReader> files = open_weights(folder);
  check_layers(files, folder, shape_.layers);
  if (format_ == WeightFormat::plain) {
    check_no_codes(files, folder);
    files_.emplace<WeightFiles>(std::move(files), shape_);
  } else if (model.groups) {
    group_ = model.groups->group;
    files_.emplace<GroupedFiles>(std::move(files), shape_, *model.groups);
  } else {
    files_.emplace<QuantizedFiles>(std::move(files), shape_, format_);
  }
}

void ModelFolder::check_format(WeightFormat wanted, MatrixRoles keep) const {
  check_formats(folder_, format_, codes_, wanted, keep);
}

InferenceOptions ModelFolder::with_groups(InferenceOptions options) const {
  options.weight_group = group_;
  return options;
}

ModelWeights::Source ModelFolder::source() const {
  if (const auto* plain = std::get_if<WeightFiles>(&files_)) {
    return {[plain](std::size_t tensor, std::int64_t begin, std::span<float> values) {
      plain->read(tensor, begin, values);
    }};
  }
  if (const auto* grouped = std::get_if<GroupedFiles>(&files_)) return source_of(*grouped);
  return source_of(std::get<QuantizedFiles>(files_));
}

std::unique_ptr<InferenceModel> open_inference_model(Device& device, const std::string& folder,
                                                     const InferenceOptions& options, Mesh* mesh) {
  const ModelFolder files(folder);
  files.check_format(options.weights, options.keep);
  auto model =
      std::make_unique<InferenceModel>(device, files.shape(), files.with_groups(options), mesh);
  model->load(files.source());
  return model;
}

}  // namespace zero
