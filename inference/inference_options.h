// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "architecture/decoder_shape.h"
#include "base/dtype.h"
#include "inference/matrix_roles.h"
#include "ops/cache_shape.h"
#include "ops/weight_shape.h"
#include "tiers/tier.h"

namespace zero {

struct InferenceOptions {
  DType dtype = DType::fp32;  ///< of activations, plain cache and weights: fp32, bf16, fp16
  WeightFormat weights =
      WeightFormat::plain;                  ///< of all matrices; of u4 tables of tokens are plain
  std::int64_t weight_group = 0;            ///< of u4: as WeightShape::group
  MatrixRoles keep{};                       ///< matrices that stay plain beside codes
  CacheFormat cache = CacheFormat::plain;   ///< of keys and values
  std::int64_t requests = 1;                ///< sequences in the cache at a time
  std::int64_t request_tokens = 0;          ///< of the longest sequence; 0: the model's context
  std::int64_t block_tokens = kCacheChunk;  ///< of a block of the cache
  std::int64_t cache_tokens = 0;            ///< of all blocks; 0: all requests at their longest
  std::int64_t host_tokens = 0;  ///< of blocks in host memory, for what those cannot keep; 0: none
  std::int64_t rows = 256;       ///< tokens of one pass, at most; 1 to kMostRows
  std::int64_t logit_rows = 0;   ///< tokens of one pass with logits, at most; 0: requests
  std::int64_t windows = 2;      ///< blocks whose weights are whole at a time, if ranks share them
                                 ///< or they are in a file
  bool graphs = true;  ///< a device with graph capture replays passes of sizes that come again
  /// Of blocks' matrices: a rank's part of them is in a file in `folder`, and read ahead of use.
  /// No folder: in memory. CPUs only; changes no bit.
  TierFileOptions block_file{};
  static constexpr std::int64_t kMostRows = 512;
  static constexpr std::int64_t kMostHostTokens = std::int64_t{1} << 28;
};

/// The options with their defaults for this decoder. Throws zero::Error naming the option that is
/// out of range.
InferenceOptions validated(InferenceOptions options, const DecoderShape& decoder);

/// Model and options, a line each (require_agreement).
std::string agreement_lines(const InferenceOptions& options, const DecoderShape& decoder);

}  // namespace zero
