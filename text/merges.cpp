// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/merges.h"

#include <queue>

#include "base/sign_of_life.h"

namespace zero {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};
/// Pairs looked up or candidates taken from one sign of life to the next: some milliseconds.
constexpr std::uint32_t kLooksBetweenSigns = 1 << 16;

/// A pair that could be merged when it was put into the queue.
struct MergeCandidate {
  std::uint32_t rank;
  std::uint32_t left;  // index into the symbols
  std::uint32_t merged;
  std::uint32_t left_token;
  std::uint32_t right_token;

  bool operator<(const MergeCandidate& other) const {  // the queue's top is the greatest
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

/// One of a list of symbols; kNone as token: merged into the one before.
struct Symbol {
  std::uint32_t token;
  std::uint32_t previous;
  std::uint32_t next;
};

}  // namespace

void Merges::add(std::uint32_t left, std::uint32_t right, std::uint32_t merged) {
  merges_.insert_or_assign(std::uint64_t{left} << 32U | right, Merge{count_++, merged});
}

const Merges::Merge* Merges::find(std::uint32_t left, std::uint32_t right) const {
  const auto found = merges_.find(std::uint64_t{left} << 32U | right);
  return found == merges_.end() ? nullptr : &found->second;
}

void Merges::apply(std::vector<std::uint32_t>& tokens) const {
  std::vector<Symbol> symbols;
  symbols.reserve(tokens.size());
  const auto count = static_cast<std::uint32_t>(tokens.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    symbols.push_back({tokens[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1});
  }
  std::uint64_t looks = 0;
  const auto sign = [&] {
    if (++looks % kLooksBetweenSigns == 0) give_sign_of_life();
  };
  std::priority_queue<MergeCandidate> queue;
  const auto consider = [&](std::uint32_t left) {
    if (left == kNone || symbols[left].next == kNone) return;
    sign();
    const std::uint32_t a = symbols[left].token;
    const std::uint32_t b = symbols[symbols[left].next].token;
    if (const Merge* merge = find(a, b)) queue.push({merge->rank, left, merge->merged, a, b});
  };
  for (std::uint32_t i = 0; i < count; ++i) consider(i);
  while (!queue.empty()) {
    sign();
    const MergeCandidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    // Older candidates whose symbols have merged with others since are passed over.
    if (left.token != best.left_token || left.next == kNone) continue;
    Symbol& right = symbols[left.next];
    if (right.token != best.right_token) continue;
    left.token = best.merged;
    left.next = right.next;
    right.token = kNone;
    if (left.next != kNone) symbols[left.next].previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
  tokens.clear();
  for (std::uint32_t i = 0; count > 0 && i != kNone; i = symbols[i].next) {
    tokens.push_back(symbols[i].token);
  }
}

}  // namespace zero
