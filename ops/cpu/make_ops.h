// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "ops/inference_ops.h"
#include "ops/ops.h"

namespace zero::cpu {

/// The operations on a device whose memory the CPU can access.
std::unique_ptr<Ops> make_ops(Device& device);
std::unique_ptr<InferenceOps> make_inference_ops(Device& device);

}  // namespace zero::cpu
