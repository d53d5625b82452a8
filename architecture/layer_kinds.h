// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero {

/// The layout of a weight in memory: (in, out) in GPT-2's files, (out, in) in most others.
enum class WeightLayout : std::uint8_t { in_out, out_in };

/// An RMS norm is a layer norm without mean and bias.
enum class NormKind : std::uint8_t { layer, rms };

}  // namespace zero
