// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "device/device.h"
#include "model/ops.h"

namespace zero::cuda {

/// Ops on a CUDA device; throws zero::Error if the engine was built without CUDA.
std::unique_ptr<Ops> make_ops(Device& device);

}  // namespace zero::cuda
