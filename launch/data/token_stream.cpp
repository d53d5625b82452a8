// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/token_stream.h"

#include <algorithm>

#include "base/error.h"

namespace zero {
namespace {

[[noreturn]] void fail_outside(const TokenFile& file, std::int64_t position,
                               std::int64_t vocabulary) {
  fail(
      "{}: token {} has id {}, but model.vocabulary is {}; ids must be below it: use the model's "
      "tokenizer or "
      "raise model.vocabulary",
      file.path(), position, file.at(position), vocabulary);
}

}  // namespace

TokenStream::TokenStream(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    files_.emplace_back(path);
    begins_.push_back(count_);
    count_ += files_.back().count();
  }
}

std::int64_t TokenStream::sequences(std::int64_t length) const {
  return count_ == 0 ? 0 : (count_ - 1) / length;
}

std::size_t TokenStream::file_of(std::int64_t position) const {
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), position);
  return static_cast<std::size_t>(next - begins_.begin()) - 1;
}

void TokenStream::sequence(std::int64_t q, std::int64_t vocabulary, std::span<std::int32_t> inputs,
                           std::span<std::int32_t> targets) const {
  const auto length = static_cast<std::int64_t>(inputs.size());
  ZERO_CHECK(q >= 0 && q < sequences(length), "sequence {} of {} was asked for", q,
             sequences(length));
  const std::int64_t begin = q * length;
  std::size_t file = file_of(begin);
  std::int64_t position = begin - begins_[file];
  for (std::int64_t i = 0; i <= length; ++i, ++position) {
    while (position >= files_[file].count()) {  // skip empty shards
      ++file;
      position = 0;
    }
    const std::uint32_t token = files_[file].at(position);
    if (token >= vocabulary) fail_outside(files_[file], position, vocabulary);
    if (i < length) inputs[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(token);
    if (i > 0) targets[static_cast<std::size_t>(i - 1)] = static_cast<std::int32_t>(token);
  }
}

void TokenStream::check_tokens(std::int64_t begin, std::int64_t end,
                               std::int64_t vocabulary) const {
  for (std::size_t f = 0; f < files_.size(); ++f) {
    const std::int64_t first = std::max<std::int64_t>(begin - begins_[f], 0);
    const std::int64_t last = std::min(end - begins_[f], files_[f].count());
    const std::int64_t position = files_[f].find_outside(first, last, vocabulary);
    if (position >= 0) fail_outside(files_[f], position, vocabulary);
  }
}

}  // namespace zero
