// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checkpoint/hf/safetensors.h"

namespace zero {

/// Opens the safetensors files of the weights at `path`, as weight_files() finds them and
/// ModelFiles opens files. Throws zero::Error naming the file; a read of damaged data of a
/// checkpoint names file, offset and tensor.
std::vector<SafetensorsReader> open_weights(const std::string& path);

}  // namespace zero
