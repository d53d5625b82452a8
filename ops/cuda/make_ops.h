// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "device/device.h"

namespace zero {

class InferenceOps;
class Ops;

namespace cuda {

/// The operations of a CUDA device; throw zero::Error if the engine was built without CUDA.
std::unique_ptr<Ops> make_ops(Device& device);
std::unique_ptr<InferenceOps> make_inference_ops(Device& device);

// Versions of the vendor's GPU libraries, which affect the last bits of results.

/// "13.0.2": the version of the loaded library, or why there is none.
std::string cublaslt_version();
std::string cudnn_version();

}  // namespace cuda
}  // namespace zero
