// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace zero {

/// The factor that brings a gradient of global norm `norm` to at most `limit`: min(1, limit / (norm
/// + 1e-6)), as PyTorch's clip_grad_norm_. A limit of 0 means no clipping. In double, rounded once.
float clip_factor(double norm, double limit);

}  // namespace zero
