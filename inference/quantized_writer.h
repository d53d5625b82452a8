// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "files/file_system.h"
#include "inference/model_folder.h"
#include "weights/hf/file_header.h"

namespace zero {

/// The formats of files of codes: of matrices; of biases, norms and positions.
struct QuantizedFormats {
  WeightFormat codes = WeightFormat::int8;
  DType vectors = DType::fp32;  ///< fp32, bf16 or fp16
};

/// The header of a file of all weights of a model.
FileHeader quantized_header(const DecoderShape& shape, const QuantizedFormats& formats);

/// Writes the weights of a folder of plain weights to the safetensors file `path`, which
/// QuantizedFiles reads, and returns its bytes. They are read some rows at a time, and are on the
/// disk at the end. Throws zero::Error naming file or tensor; a part of the file may then be there.
std::int64_t write_quantized(const ModelFolder& from, const QuantizedFormats& formats, int threads,
                             files::FileSystem& disk, const std::string& path);

}  // namespace zero
