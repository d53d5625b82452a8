// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "ops/inference_ops.h"

namespace zero::cuda {

/// InferenceOps on a CUDA device; throws zero::Error if the engine was built without CUDA.
std::unique_ptr<InferenceOps> make_inference_ops(Device& device);

}  // namespace zero::cuda
