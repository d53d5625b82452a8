// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weights/hf/safetensors.h"

namespace zero {

/// The safetensors files that hold the weights at `path`: the file itself or, of a folder, its
/// model.safetensors or the files that its model.safetensors.index.json lists. Throws zero::Error
/// naming the missing file.
std::vector<std::string> weight_files(const std::string& path);

/// Opens the safetensors files of the weights at `path`, as weight_files() finds them and
/// ModelFiles opens files. Throws zero::Error naming the file; a read of damaged data of a
/// checkpoint names file, offset and tensor.
std::vector<SafetensorsReader> open_weights(const std::string& path);

}  // namespace zero
