// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_fields.h"

namespace zero {

/// The field that says that matrices are codes, and our name in it.
inline constexpr const char* kHfQuantization = "quantization_config";
inline constexpr const char* kHfOurMethod = "zero";

/// Why llm_int8_threshold (Dettmers et al. 2022) changes nothing, for messages.
inline constexpr std::string_view kNoThreshold =
    "activations are never quantized here, so nothing is left to separate";

/// Codes of 4 bits in groups, as the programs of GPTQ (Frantar et al. 2022) and AWQ (Lin et al.
/// 2023) write them: an element is its code less its group's zero point, times its group's scale.
struct GroupQuantization {
  enum class Packing : std::uint8_t {
    gptq,     ///< eight inputs in a word; zero points less one (checkpoint_format "gptq")
    gptq_v2,  ///< zero points as they are
    awq,      ///< eight outputs in a word, in the order of AWQ's kernels (version "gemm")
  };
  Packing packing = Packing::gptq;
  std::int64_t group = 0;  ///< inputs with one scale and zero point, a multiple of 32; 0: all
  bool symmetric = false;  ///< every zero point must be 8
  bool sorted = false;     ///< inputs may have another order (desc_act): g_idx must tell

  /// "gptq" or "awq".
  std::string_view method() const { return packing == Packing::awq ? "awq" : "gptq"; }
};

/// What quantization_config says of matrices.
struct HfCodes {
  std::string format{};  ///< of ours, or a method of GroupQuantization; empty: plain elements
  std::optional<GroupQuantization> groups{};
};

/// Takes quantization_config, and what stands for it, from a config.json. Throws zero::Error naming
/// file, field, found and expected if the codes are another program's, or of a kind that is not
/// read, and, with all of their names, on unknown fields.
HfCodes codes_from(JsonFields& config);

}  // namespace zero
