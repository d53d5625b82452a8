// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/model/shapes.h"

namespace zero::testing {

/// Widths that do not divide by 8, a vocabulary that does by nothing. 4 heads of keys and values
/// are fewer than 8 ranks: their copies are summed.
inline LlamaSizes uneven_llama(std::int64_t context) {
  return {.layers = 2,
          .width = 20,
          .heads = 12,
          .kv_heads = 4,
          .head_width = 4,
          .intermediate = 27,
          .vocabulary = 41,
          .context = context,
          .qkv_bias = true};
}

/// The same with norms of heads in place of biases.
inline LlamaSizes uneven_qwen3(std::int64_t context) {
  LlamaSizes sizes = uneven_llama(context);
  sizes.qkv_bias = false;
  sizes.head_norms = true;
  return sizes;
}

}  // namespace zero::testing
