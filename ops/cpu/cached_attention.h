// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/inference_ops.h"

namespace zero::cpu {

/// Rows [begin, end) of one sequence, for the query heads that read one key head.
struct AttentionRows {
  const SequenceRows* sequence = nullptr;
  std::int64_t kv_head = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
/// Query rows that share loads of keys and values, at most.
inline constexpr std::int64_t kTileRows = 8;
/// Bytes of scratch of one thread.
std::int64_t attention_scratch_bytes(const CacheShape& shape);
/// Softmax over key blocks of kKeyBlock positions, at multiples of it, each folded into running
/// largest score, sum and output (Milakov and Gimelshein 2018): the same for a row whatever rows
/// are computed beside it.
inline constexpr std::int64_t kKeyBlock = 64;
void attend_rows(const CachedAttention& operands, const AttentionRows& rows, void* scratch);

}  // namespace zero::cpu
