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
#include "inference/inference_options.h"
#include "inference/model_weights.h"
#include "weights/file_match.h"
#include "weights/grouped_files.h"
#include "weights/quantized_files.h"

namespace zero {

/// The format of the matrices in a Hugging Face folder, as its config.json has it; plain: elements.
/// Any format can be made of elements. Throws zero::Error naming file, field, found and expected.
WeightFormat stored_format(const std::string& folder);
/// Likewise the inputs of a group of the codes, as WeightShape::group; 0 of formats without.
std::int64_t stored_group(const std::string& folder);
/// Throws zero::Error, with what would work, if weights of that format, but for plain matrices of
/// the roles `keep`, cannot be had of what config.json says that the folder has.
void check_stored_format(const std::string& folder, WeightFormat wanted, MatrixRoles keep);

/// A Hugging Face folder, whose files are open and fit its config.json.
class ModelFolder {
 public:
  /// Throws zero::Error naming file, field or tensor, and if the files cannot hold as many layers
  /// as config.json has.
  explicit ModelFolder(const std::string& folder);

  const DecoderShape& shape() const { return shape_; }
  /// As stored_format().
  WeightFormat format() const { return format_; }
  /// The options with the groups of the folder's codes.
  InferenceOptions with_groups(InferenceOptions options) const;
  /// The format's name, or the method whose codes they are: "int8", "gptq"; "dtype" of elements.
  const std::string& codes() const { return codes_; }
  /// Throws zero::Error, with what would work, if weights of that format, but for plain matrices
  /// of the roles `keep`, cannot be had.
  void check_format(WeightFormat wanted, MatrixRoles keep = {}) const;
  /// Of weights in a format that can be had; the folder must outlive it, unmoved.
  ModelWeights::Source source() const;

 private:
  std::string folder_;
  DecoderShape shape_;
  WeightFormat format_ = WeightFormat::plain;
  std::int64_t group_ = 0;
  std::string codes_;
  std::variant<std::monostate, WeightFiles, QuantizedFiles, GroupedFiles> files_;
};

}  // namespace zero
