// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checkpoint/hf/safetensors.h"

namespace zero {

/// Opens the safetensors files of the weights at `path`, as weight_files() finds them. In the
/// folder `weights` of a checkpoint, as `path` or a link on the way names it, they must be as they
/// were saved: every block of which a byte is read is first held against its checksum. Throws
/// zero::Error naming the file; a read of damaged data names file, offset and tensor.
std::vector<SafetensorsReader> open_weights(const std::string& path);

}  // namespace zero
