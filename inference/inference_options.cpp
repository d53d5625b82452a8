// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/inference_options.h"

#include <fmt/format.h>

#include <string_view>

#include "base/checked_math.h"
#include "base/error.h"
#include "ops/tile.h"

namespace zero {

InferenceOptions validated(InferenceOptions options, const DecoderShape& decoder) {
  const auto check = [](std::string_view name, std::int64_t value, std::int64_t most,
                        std::int64_t least = 1) {
    ZERO_CHECK(value >= least && value <= most, "inference: {} is {}, expected {} to {}", name,
               value, least, most);
  };
  constexpr std::int64_t kMostRequests = 1 << 16;
  constexpr std::int64_t kMostWindows = 64;
  if (options.request_tokens == 0) options.request_tokens = decoder.context;
  if (options.logit_rows == 0) options.logit_rows = std::min(options.requests, options.rows);
  check("requests", options.requests, kMostRequests);
  check("request_tokens", options.request_tokens, decoder.context);
  check("block_tokens", options.block_tokens, round_up(decoder.context, kCacheChunk), kCacheChunk);
  ZERO_CHECK(options.block_tokens % kCacheChunk == 0,
             "inference: block_tokens is {}, expected a multiple of {}", options.block_tokens,
             kCacheChunk);
  check("cache_tokens", options.cache_tokens, std::int64_t{1} << 40, 0);
  check("host_tokens", options.host_tokens, InferenceOptions::kMostHostTokens, 0);
  check("rows", options.rows, InferenceOptions::kMostRows);
  check("logit_rows", options.logit_rows, kMostRequests);
  check("windows", options.windows, kMostWindows);
  check("weight_group", options.weight_group, std::int64_t{1} << 20, 0);
  ZERO_CHECK(options.weight_group % kTile == 0,
             "inference: weight_group is {}, expected 0 (one of all inputs) or a multiple of {}",
             options.weight_group, kTile);
  ZERO_CHECK(
      options.dtype == DType::fp32 || options.dtype == DType::bf16 || options.dtype == DType::fp16,
      "inference: dtype is {}, expected fp32, bf16 or fp16", name_of(options.dtype));
  return options;
}

std::string agreement_lines(const InferenceOptions& options, const DecoderShape& decoder) {
  const DecoderShape& d = decoder;
  const InferenceOptions& o = options;
  return fmt::format(
      "layers: {}\nwidth: {}\nheads: {}\nkey/value heads: {}\nhead width: {}\nintermediate: {}\n"
      "vocabulary: {}\ndtype: {}\nweights: {}\nweight_group: {}\nkeep: {}\ncache: {}\n"
      "requests: {}\nrequest_tokens: {}\n"
      "block_tokens: {}\ncache_tokens: {}\nhost_tokens: {}\nrows: {}\nlogit_rows: {}\n"
      "windows: {}\nblocks: {}\n",
      d.layers, d.width, d.heads, d.kv_heads, d.head_width, d.intermediate, d.vocabulary,
      name_of(o.dtype), name_of(o.weights), o.weight_group, o.keep.text(), name_of(o.cache),
      o.requests, o.request_tokens, o.block_tokens, o.cache_tokens, o.host_tokens, o.rows,
      o.logit_rows, o.windows, o.block_file.folder.empty() ? "in memory" : "in a file");
}

}  // namespace zero
