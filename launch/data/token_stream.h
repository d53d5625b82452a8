// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launch/data/token_file.h"

namespace zero {

/// Shards, in name order, as one stream of tokens. Read-only.
class TokenStream {
 public:
  explicit TokenStream(const std::vector<std::string>& paths);

  std::int64_t count() const { return count_; }
  const std::vector<TokenFile>& files() const { return files_; }
  /// Whole sequences of `length` inputs and their targets: (tokens - 1) / length.
  std::int64_t sequences(std::int64_t length) const;
  /// Sequence `q`: inputs are tokens [q * T, q * T + T), T = inputs.size() = targets.size();
  /// targets are the same range shifted by one token. Throws zero::Error naming file, position and
  /// id if a token id is `vocabulary` or more.
  void sequence(std::int64_t q, std::int64_t vocabulary, std::span<std::int32_t> inputs,
                std::span<std::int32_t> targets) const;
  /// Throws like sequence() if one of the tokens [begin, end) of the stream is too large.
  void check_tokens(std::int64_t begin, std::int64_t end, std::int64_t vocabulary) const;

 private:
  std::size_t file_of(std::int64_t position) const;

  std::vector<TokenFile> files_;
  std::vector<std::int64_t> begins_;  // of each file, in the stream
  std::int64_t count_ = 0;
};

}  // namespace zero
