// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

/// The vendor's libraries that compute on a GPU, which decide last bits.
namespace zero::cuda {

/// "13.0.2": of the library that is loaded, or why there is none.
std::string cublaslt_version();
std::string cudnn_version();

}  // namespace zero::cuda
