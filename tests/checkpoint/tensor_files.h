// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/errors.h"
#include "tests/scratch.h"
#include "weights/hf/safetensors.h"

namespace zero::testing {

/// Path of a recorded file beside the tests.
std::string recorded(std::string_view name);
/// A safetensors file of this JSON text and data, header length included.
std::string file_of(std::string_view json, std::string_view data);
/// The whole of a tensor of any type.
std::vector<std::byte> bytes_of(const SafetensorsReader& file, const FileTensor& tensor);
/// Writes a safetensors file of that layout; a tensor that `values` does not name holds zeros.
void write_tensors(const std::string& path, const FileHeader& layout,
                   const std::map<std::string, std::vector<std::byte>>& values = {});

}  // namespace zero::testing
