// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/message_text.h"

namespace zero {
namespace {

int name_of(int rank, std::span<const int> names) {
  return names.empty() ? rank : names[static_cast<std::size_t>(rank)];
}

std::optional<std::string> pairwise_mismatch(const Call& mine, int me, const Call& theirs, int them,
                                             std::span<const int> names) {
  const auto i = static_cast<std::size_t>(me);
  const auto j = static_cast<std::size_t>(them);
  if (mine.receive_counts[j] != theirs.counts[i]) {
    return fmt::format("[rank {}] {}: rank {} sends {} elements, expected receive slice {}'s {}",
                       name_of(me, names), mine.name, name_of(them, names), theirs.counts[i], them,
                       mine.receive_counts[j]);
  }
  if (mine.counts[j] != theirs.receive_counts[i]) {
    return fmt::format("[rank {}] {}: rank {} expects {} elements, send slice {} has {}",
                       name_of(me, names), mine.name, name_of(them, names),
                       theirs.receive_counts[i], them, mine.counts[j]);
  }
  return std::nullopt;
}

/// The calls in words that tell apart those that differ in the first property in which any do.
std::vector<std::string> words_apart(std::span<const Call> calls) {
  const Call& one = calls.front();
  const auto differ = [&](const auto& property) {
    return std::ranges::any_of(calls, [&](const Call& other) {
      return std::invoke(property, other) != std::invoke(property, one);
    });
  };
  const auto words = [&](const auto& text) {
    std::vector<std::string> all;
    for (const Call& call : calls) all.push_back(text(call));
    return all;
  };
  if (differ(&Call::name)) return words([](const Call& call) { return call.name; });
  if (differ(&Call::details)) {
    return words([](const Call& call) { return fmt::format("{} ({})", call.name, call.details); });
  }
  const auto slices = [](const Call& call) { return call.counts.size(); };
  if (differ(slices)) {
    return words([&](const Call& call) {
      return fmt::format("{} with {}", call.name, counted(std::ssize(call.counts), "slice"));
    });
  }
  std::size_t slice = 0;
  const auto count = [&](const Call& call) { return call.counts[slice]; };
  while (slice < one.counts.size() && !differ(count)) ++slice;
  if (slice == one.counts.size()) return words([](const Call& call) { return call.name; });
  return words([&](const Call& call) {
    return fmt::format("{} with {} elements in slice {}", call.name, count(call), slice);
  });
}

}  // namespace

std::optional<std::string> mismatch(const Call& mine, int me, const Call& theirs, int them,
                                    std::span<const int> names) {
  const int my_name = name_of(me, names);
  const int their_name = name_of(them, names);
  if (mine.name != theirs.name) {
    return fmt::format(
        "[rank {}] {} met {} of rank {}: one of them left a call out or took another branch",
        my_name, mine.name, theirs.name, their_name);
  }
  if (mine.details != theirs.details) {
    return fmt::format("[rank {}] {} ({}) met {} ({}) of rank {}", my_name, mine.name, mine.details,
                       theirs.name, theirs.details, their_name);
  }
  if (mine.pairwise) return pairwise_mismatch(mine, me, theirs, them, names);
  if (mine.counts.size() != theirs.counts.size()) {
    return fmt::format("[rank {}] {}: {} slices met {} of rank {}", my_name, mine.name,
                       mine.counts.size(), theirs.counts.size(), their_name);
  }
  for (std::size_t r = 0; r < mine.counts.size(); ++r) {
    if (mine.counts[r] != theirs.counts[r]) {
      return fmt::format("[rank {}] {}: {} elements in slice {} met {} of rank {}", my_name,
                         mine.name, mine.counts[r], r, theirs.counts[r], their_name);
    }
  }
  return std::nullopt;
}

std::optional<OddCalls> odd_calls(std::span<const Call> calls, std::span<const int> names) {
  struct Alike {
    std::string words;
    std::vector<int> ranks{};
  };
  std::vector<Alike> all;  // in the order of the ranks
  int rank = 0;
  for (std::string& words : words_apart(calls)) {
    auto alike = std::ranges::find(all, words, &Alike::words);
    if (alike == all.end()) alike = all.insert(alike, Alike{.words = std::move(words)});
    alike->ranks.push_back(name_of(rank++, names));
  }
  const auto ranks = [](const Alike& alike) { return alike.ranks.size(); };
  const auto most = std::ranges::max_element(all, {}, ranks);
  if (all.size() == 1 || std::ranges::count(all, ranks(*most), ranks) > 1) return std::nullopt;
  OddCalls odd;
  for (const Alike& alike : all) {
    if (&alike == &*most) continue;
    odd.ranks.insert(odd.ranks.end(), alike.ranks.begin(), alike.ranks.end());
    odd.text += fmt::format("{} call{} {}, ", ranks_text(alike.ranks), ranks(alike) == 1 ? "s" : "",
                            alike.words);
  }
  std::ranges::sort(odd.ranks);
  odd.text += fmt::format("the other {} ranks {}", ranks(*most), most->words);
  return odd;
}

}  // namespace zero
