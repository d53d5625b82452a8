// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "architecture/decoder_shape.h"
#include "inference/model_weights.h"
#include "weights/file_match.h"
#include "weights/quantized_files.h"

namespace zero {

/// The parameters of a model in safetensors files, by their registered names, fused matrices too,
/// without an engine.
class WeightFiles {
 public:
  /// Those of ModelWeights::tensors(). Throws zero::Error as load_weights does.
  WeightFiles(std::vector<SafetensorsReader> files, const DecoderShape& shape);

  /// Fills `values` from element `begin` of tensor `tensor` of the list on, as fp32.
  void read(std::size_t tensor, std::int64_t begin, std::span<float> values) const;

 private:
  NameMap names_;
  std::vector<SafetensorsReader> files_;
  std::vector<LayoutTensor> layout_;  ///< as files hold them
  FileMatch match_;
};

/// The format of the matrices in a Hugging Face folder, as its config.json has it; plain: elements.
/// Any format can be made of elements. Throws zero::Error naming file, field, found and expected.
WeightFormat stored_format(const std::string& folder);

/// A Hugging Face folder, whose files are open and fit its config.json.
class ModelFolder {
 public:
  /// Throws zero::Error naming file, field or tensor, and if the files cannot hold as many layers
  /// as config.json has.
  explicit ModelFolder(const std::string& folder);

  const DecoderShape& shape() const { return shape_; }
  /// As stored_format().
  WeightFormat format() const { return format_; }
  /// Throws zero::Error, with what would work, if weights of that format, but for plain matrices
  /// of the roles `keep`, cannot be had.
  void check_format(WeightFormat wanted, MatrixRoles keep = {}) const;
  /// Of weights in a format that can be had; the folder must outlive it, unmoved.
  ModelWeights::Source source() const;

 private:
  std::string folder_;
  DecoderShape shape_;
  WeightFormat format_ = WeightFormat::plain;
  std::variant<std::monostate, WeightFiles, QuantizedFiles> files_;
};

}  // namespace zero
