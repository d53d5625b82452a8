// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "model/llama.h"

namespace zero {
namespace {

void check_field(std::string_view field, std::int64_t value) {
  // Products of two sizes must fit what token ids and matrix libraries count with.
  constexpr std::int64_t kLargest = 1 << 24;
  ZERO_CHECK(value >= 1 && value <= kLargest, "model.{} is {}, expected 1 to {}", field, value,
             kLargest);
}

}  // namespace

void LlamaConfig::validate() const {
  check_field("layers", layers);
  check_field("width", width);
  check_field("heads", heads);
  check_field("kv_heads", kv_heads);
  check_field("intermediate", intermediate);
  check_field("context", context);
  check_field("vocabulary", vocabulary);
  ZERO_CHECK(heads % kv_heads == 0, "model.heads is {}, expected a multiple of model.kv_heads = {}",
             heads, kv_heads);
  ZERO_CHECK(head_width != 0 || width % heads == 0,
             "model.width is {}, expected a multiple of model.heads = {}, or a model.head_width of "
             "its own",
             width, heads);
  check_field("head_width", head_elements());
  ZERO_CHECK(head_elements() >= 2 && head_elements() % 2 == 0,
             "model.head_width is {}, expected an even number: rotary embeddings turn pairs",
             head_elements());
  ZERO_CHECK(std::isfinite(norm_epsilon) && norm_epsilon > 0,
             "model.norm_epsilon is {}, expected more than 0", norm_epsilon);
  rotary.validate();
}

std::int64_t LlamaConfig::parameter_count() const {
  const std::int64_t queries = heads * head_elements();
  const std::int64_t qkv = queries + 2 * kv_heads * head_elements();
  const std::int64_t attention =
      qkv * width + queries * width + (qkv_bias == QkvBias::present ? qkv : 0);
  const std::int64_t tables = (head == Head::tied ? 1 : 2) * vocabulary * width;
  return tables + layers * (attention + 3 * intermediate * width + 2 * width) + width;
}

}  // namespace zero
