// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "architecture/decoder_shape.h"

namespace zero {

/// Of what --explain is asked beside the usual figures.
struct ExplainQuestion {
  std::int64_t parameters = 7'500'000'000;
  std::int64_t ranks = 64;
};

/// Bytes of keys and values of `tokens` tokens: 2 x layers x kv heads x head width x tokens x
/// `element` bytes.
std::int64_t cache_bytes(const DecoderShape& model, std::int64_t tokens, std::int64_t element);

/// Tokens that a cache has for sequences of such lengths: in blocks of `block` tokens, or, with 0,
/// contiguous and as long as the longest.
std::int64_t cache_tokens(const std::vector<std::int64_t>& lengths, std::int64_t block);

/// Estimates that introductions quote, each with what it leaves out, as text for people.
std::string explained(const ExplainQuestion& question);

}  // namespace zero
