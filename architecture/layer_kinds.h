// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero {

/// The layout of a weight in memory: (in, out) in GPT-2's files, (out, in) in most others.
enum class WeightLayout : std::uint8_t { in_out, out_in };

/// An RMS norm is a layer norm without mean and bias; rms_plus_one: one whose weights are 1 + the
/// stored ones.
enum class NormKind : std::uint8_t { layer, rms, rms_plus_one };

/// The function of a gated MLP's gate; gelu: the tanh form of GPT-2.
enum class Gate : std::uint8_t { silu, gelu };

}  // namespace zero
