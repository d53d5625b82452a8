// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "architecture/decoder_parameters.h"
#include "ops/weight_shape.h"
#include "weights/hf/file_header.h"

namespace zero {

/// The parameters of a model in the order of ModelWeights::tensors().
std::vector<DecoderParameter> all_parameters(const DecoderShape& shape);

/// The whole of a matrix in codes.
WeightShape whole_shape(const DecoderParameter& matrix, WeightFormat format);

/// The tensors that hold a matrix in files of codes (docs/quantized_weights.md): NAME, its codes;
/// NAME_scale; and of nf4 NAME_scale_range. Names, types and shapes alone are set.
std::vector<FileTensor> quantized_tensors(const DecoderParameter& matrix, WeightFormat format);

/// Bytes of a row of codes in files.
std::int64_t code_row_bytes(const WeightShape& shape);

}  // namespace zero
