// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "inference/quantized_writer.h"
#include "tests/scratch.h"
#include "weights/hf/config.h"

namespace zero::testing {

/// Writes the model of `folder` in codes to the new folder `out`, which ends with a slash.
inline void save_codes(const std::string& folder, const std::string& out,
                       const QuantizedFormats& formats) {
  std::filesystem::create_directory(out);
  const ModelFolder from(folder);
  write_quantized(from, formats, 2, files::disk(), out + "model.safetensors");
  const std::string config = folder + "config.json";
  write_bytes(out + "config.json",
              quantized_config_text(config, file_bytes(config), name_of(formats.codes), "float32"));
}

}  // namespace zero::testing
