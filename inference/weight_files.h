// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "architecture/decoder_shape.h"
#include "weights/file_match.h"

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

}  // namespace zero
