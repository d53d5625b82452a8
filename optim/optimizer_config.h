// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace zero {

/// The memory format of an optimizer's moments. The update itself is in fp32: a moment is read to
/// fp32, changed, and stored in the format, in one pass over memory.
enum class MomentFormat : std::uint8_t {
  fp32,
  bf16,       ///< 2 bytes, rounded stochastically (optim/small_moments.inc)
  eight_bit,  ///< 1 byte, and an fp32 scale for kMomentBlock elements (optim/small_moments.inc)
};
/// "fp32", "bf16" or "8bit".
std::string_view name_of(MomentFormat format);
/// The format of that name; throws zero::Error listing all names if there is none.
MomentFormat moment_format_from_name(std::string_view name);

/// The dtype of a moment's values in memory: fp32, bf16, or u8 for codes.
constexpr DType moment_dtype(MomentFormat format) {
  if (format == MomentFormat::eight_bit) return DType::u8;
  return format == MomentFormat::bf16 ? DType::bf16 : DType::fp32;
}

/// Elements of an 8-bit moment that have one scale in common. Blocks begin at multiples of it in
/// the flat layout.
inline constexpr std::int64_t kMomentBlock = 256;
/// Elements that moments of a format are cut at multiples of: whole blocks, or anywhere (1).
constexpr std::int64_t moment_block(MomentFormat format) {
  return format == MomentFormat::eight_bit ? kMomentBlock : 1;
}

/// The update rule and its constants. Doubles, like PyTorch's: step sizes are computed in double
/// and rounded to fp32 once.
struct OptimizerConfig {
  enum class Kind : std::uint8_t {
    adamw,  ///< decoupled weight decay (Loshchilov & Hutter 2019)
    adam,   ///< weight decay added to the gradient (Kingma & Ba 2015)
    sgd,    ///< momentum as PyTorch defines it: buf = momentum * buf + g; p -= lr * buf
  };
  Kind kind = Kind::adamw;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  ///< for parameters of no other group
  double momentum = 0;         ///< sgd
  MomentFormat moments = MomentFormat::fp32;
};
std::string_view name_of(OptimizerConfig::Kind kind);
/// Throws zero::Error naming every constant of the kind that is out of range.
void validate(const OptimizerConfig& config);

/// Overrides for parameters whose full name matches `pattern` ('*' any run of characters, '?' one
/// character).
struct ParameterGroup {
  std::string pattern;
  double learning_rate_scale = 1;
  std::optional<double> weight_decay{};  ///< unset: the optimizer's
};

/// Throws zero::Error naming the group's pattern if a number is out of range.
void validate(const ParameterGroup& group);

/// The settings of one parameter.
struct GroupSettings {
  double learning_rate_scale = 1;
  double weight_decay = 0;
};

/// The first group whose pattern matches decides; no match gives {1, default_weight_decay}.
GroupSettings settings_for(const std::vector<ParameterGroup>& groups, std::string_view full_name,
                           double default_weight_decay);

/// Whether `text` matches `pattern` ('*', '?').
bool matches(std::string_view pattern, std::string_view text);

}  // namespace zero
