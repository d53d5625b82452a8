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
  std::vector<std::uint32_t> tokens(inputs.size() + 1);
  std::span<std::uint32_t> left(tokens);
  std::int64_t position = begin - begins_[file_of(begin)];
  for (std::size_t file = file_of(begin); !left.empty(); ++file, position = 0) {
    const auto there = static_cast<std::size_t>(files_[file].count() - position);
    const std::span<std::uint32_t> part = left.first(std::min(left.size(), there));
    files_[file].read(position, part);
    const auto outside =
        std::ranges::find_if(part, [=](std::uint32_t token) { return token >= vocabulary; });
    if (outside != part.end()) {
      fail_outside(files_[file], position + (outside - part.begin()), vocabulary);
    }
    left = left.subspan(part.size());
  }
  std::copy(tokens.begin(), tokens.end() - 1, inputs.begin());
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
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
