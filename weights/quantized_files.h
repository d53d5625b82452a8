// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "architecture/decoder_parameters.h"
#include "ops/quantized_rows.h"
#include "weights/file_match.h"
#include "weights/hf/safetensors.h"

namespace zero {

/// The whole of a matrix in codes.
WeightShape whole_shape(const DecoderParameter& matrix, WeightFormat format);

/// The tensors that hold a matrix in files of codes (docs/quantized_weights.md): NAME, its codes;
/// NAME_scale; and of nf4 NAME_scale_range. Names, types and shapes alone are set.
std::vector<FileTensor> quantized_tensors(const DecoderParameter& matrix, WeightFormat format);

/// Bytes of a row of codes in files.
std::int64_t code_row_bytes(const WeightShape& shape);

/// The parameters of a model in safetensors files whose matrices are codes, as write_quantized()
/// writes them.
class QuantizedFiles {
 public:
  /// Finds the parameters of ModelWeights::tensors(). Throws zero::Error naming file, tensor, found
  /// and expected if a tensor is missing, repeated, unknown, or has another type or shape.
  QuantizedFiles(std::vector<SafetensorsReader> files, const DecoderShape& shape,
                 WeightFormat format);

  /// Fills `values` from element `begin` of tensor `tensor` of the list on, as fp32; of a matrix
  /// best whole rows: pack_rows() of them are decoded at least. Throws zero::Error naming file,
  /// tensor and element if a code or scale is not one that the format allows
  /// (docs/quantized_weights.md).
  void read(std::size_t tensor, std::int64_t begin, std::span<float> values) const;

  /// Rows [first, first + count) of a part of a matrix, for ModelWeights::ReadCodes; nothing if the
  /// groups and ranges of `shape` are not those of the files, because the part begins inside one.
  /// Throws zero::Error likewise.
  std::optional<QuantizedRows> read_codes(std::size_t tensor, const TensorPart& part,
                                          const WeightShape& shape, std::int64_t first,
                                          std::int64_t count) const;

 private:
  /// Of a parameter.
  struct Held {
    DecoderParameter parameter;
    FileSource elements{};  ///< of a vector, or a matrix's codes
    FileSource scales{};
    FileSource ranges{};
  };

  std::vector<SafetensorsReader> files_;
  WeightFormat format_;
  std::vector<Held> held_;  // in the order of the list
};

}  // namespace zero
