// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "architecture/decoder_shape.h"
#include "architecture/name_map.h"
#include "weights/checkpoint_layout.h"
#include "weights/file_match.h"

namespace zero {

/// The parameters of a model in safetensors files, by their registered names, fused matrices too,
/// without an engine.
class WeightFiles {
 public:
  /// Those of ModelWeights::tensors(). Throws zero::Error as load_weights does.
  WeightFiles(std::vector<SafetensorsReader> files, const DecoderShape& shape);

  /// What files hold in another form than elements.
  struct Codes {
    /// Whether a parameter is in codes; by its index in the list.
    std::function<bool(std::size_t parameter)> holds;
    /// Whether the tensor of files with that name, without the prefix of all names, is of codes.
    std::function<bool(std::string_view bare_name, const FileSource& tensor)> takes;
  };
  /// Likewise, of all other parameters and tensors.
  WeightFiles(std::vector<SafetensorsReader> files, const DecoderShape& shape, const Codes& codes);

  /// Fills `values` from element `begin` of tensor `tensor` of the list on, as fp32.
  void read(std::size_t tensor, std::int64_t begin, std::span<float> values) const;

  std::span<const SafetensorsReader> files() const { return files_; }
  const NameMap& names() const { return names_; }

 private:
  NameMap names_;
  std::vector<SafetensorsReader> files_;
  std::vector<LayoutTensor> layout_;  ///< as files hold them
  FileMatch match_;
};

/// The parameters of a model as files hold them: pieces of a fused one under their own names.
/// LayoutTensor::source is an index in all_parameters().
std::vector<LayoutTensor> tensors_of_files(const DecoderShape& shape);

}  // namespace zero
