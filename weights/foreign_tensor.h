// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weights/hf/file_header.h"

namespace zero {

/// What wrote the tensor of a file that a model cannot take, and what to do, as "; ..." to end a
/// message with: wrappers of modules, adapters, heads of other models, weights of 8 bits, shards
/// that were not gathered. Empty: nothing known.
std::string tensor_advice(const FileTensor& tensor);

}  // namespace zero
