// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "architecture/decoder_parameters.h"
#include "ops/quantized_rows.h"
#include "weights/file_match.h"
#include "weights/hf/quantization.h"

namespace zero {

/// The parameters of a model in safetensors files as GPTQ's and AWQ's programs write them: the
/// matrices of blocks are codes with a scale and a zero point for each group, all else is elements
/// (docs/quantized_weights.md).
class GroupedFiles {
 public:
  /// Finds the parameters of ModelWeights::tensors(). Throws zero::Error naming file, tensor, found
  /// and expected if a tensor is missing, repeated, unknown, or has another type or shape, if
  /// inputs are in another order than the model's (desc_act), or if there is a bias other than zero
  /// that the model lacks.
  GroupedFiles(std::vector<SafetensorsReader> files, const DecoderShape& shape,
               const GroupQuantization& quantization);

  const GroupQuantization& quantization() const { return quantization_; }

  /// Fills `values` from element `begin` of tensor `tensor` of the list on, as fp32; of a matrix in
  /// codes best whole rows. Throws zero::Error naming file, tensor and place if a scale is no
  /// finite number that fp16 holds, or a zero point is not 8 where codes are symmetric.
  void read(std::size_t tensor, std::int64_t begin, std::span<float> values) const;

  /// Rows [first, first + count) of a part of a matrix, for ModelWeights::ReadCodes; nothing if its
  /// parameter is elements. Throws zero::Error likewise, and if a group of `shape` has inputs of
  /// several of the files'.
  std::optional<QuantizedRows> read_codes(std::size_t tensor, const TensorPart& part,
                                          const WeightShape& shape, std::int64_t first,
                                          std::int64_t count) const;

 private:
  /// A matrix of files: some outputs of a parameter.
  struct Piece {
    std::string name;  ///< without "weight", with a dot behind it
    std::string bare;  ///< likewise, without the prefix of all names
    std::int64_t in = 0;
    TensorSlice::Range outputs{};
    FileSource codes{}, zeros{}, scales{}, order{}, bias{};
  };
  struct Matrix {
    DecoderParameter parameter;
    std::vector<Piece> pieces{};  ///< in order; none: elements
  };
  /// Outputs of a piece that are outputs of rows from `column` on.
  struct Outputs {
    const Piece& piece;
    TensorSlice::Range range;  ///< of the piece
    std::int64_t column = 0;
  };

  static std::vector<Matrix> matrices(const DecoderShape& shape);
  bool awq() const { return quantization_.packing == GroupQuantization::Packing::awq; }
  bool take(std::string_view bare_name, const FileSource& tensor);
  void check(const Piece& piece) const;
  void check_tensor(const Piece& piece, const FileSource& found, const FileTensor& expected) const;
  void check_order(const Piece& piece) const;
  void fill_codes(const Outputs& of, std::int64_t input, QuantizedRows& rows) const;
  void fill_scales(const Outputs& of, std::int64_t input, QuantizedRows& rows) const;
  void fill_zeros(const Outputs& of, std::int64_t input, QuantizedRows& rows) const;
  /// The group of files in which a group of rows lies, whose first input is `input`.
  std::int64_t group_of(const QuantizedRows& rows, std::int64_t group, std::int64_t input) const;

  GroupQuantization quantization_;
  std::vector<Matrix> matrices_;  // by parameter
  WeightFiles plain_;
};

}  // namespace zero
