// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file_match.h"
#include "model/model_config.h"

namespace zero {

/// The parameters of a model in the safetensors files of a Hugging Face folder, by their registered
/// names, fused matrices too, without an engine.
class WeightFiles {
 public:
  /// Those of ModelWeights::tensors(). Throws zero::Error as load_weights does, and if the files
  /// cannot hold as many layers as `config` has.
  WeightFiles(const std::string& folder, const ModelConfig& config);

  /// Fills `values` from element `begin` of tensor `tensor` of the list on, as fp32.
  void read(std::size_t tensor, std::int64_t begin, std::span<float> values) const;

 private:
  NameMap names_;
  std::vector<SafetensorsReader> files_;
  std::vector<LayoutTensor> layout_;  ///< as files hold them
  FileMatch match_;
};

}  // namespace zero
