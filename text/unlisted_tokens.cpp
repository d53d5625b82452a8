// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/unlisted_tokens.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace zero {
namespace {

using Kind = SpecialNames::Kind;

/// Why the next ids are not certain; empty if they are.
std::string doubt(const std::vector<SpecialNames::Named>& next, const SpecialNames& special,
                  const ListedTokens& listed) {
  if (std::ranges::find(listed.taken, false) != listed.taken.end()) {
    return "its ids have gaps, so that the next one is not certain";
  }
  const auto named = std::ranges::count(next, Kind::named, &SpecialNames::Named::kind);
  const bool has_list =
      std::ranges::find(next, Kind::additional, &SpecialNames::Named::kind) != next.end();
  if (named > 1 || (named == 1 && has_list)) {
    return "others have no id either, and versions of transformers number them in other orders";
  }
  if (has_list && special.merged) {
    return "it is in one of several lists, of which versions of transformers take others";
  }
  return "";
}

}  // namespace

std::vector<AddedToken> number_unlisted(const SpecialNames& special, const ListedTokens& listed) {
  std::vector<AddedToken> tokens;
  std::vector<SpecialNames::Named> next;  // those without an id
  for (SpecialNames::Named& each : special.in_order()) {
    if (listed.found.contains(each.token.content)) continue;
    if (const auto id = listed.id(each.token.content)) {
      if (each.kind == Kind::part) continue;  // a word
      each.token.id = *id;
      tokens.push_back(std::move(each.token));
    } else {
      if (each.part == "eos_token") return {};  // refused by its name
      next.push_back(std::move(each));
    }
  }
  const auto first = std::ranges::find_if(
      next, [](const SpecialNames::Named& each) { return each.kind != Kind::part; });
  if (first == next.end()) return tokens;
  const std::string why = doubt(next, special, listed);
  ZERO_CHECK(why.empty(),
             "{}: {}: found \"{}\", which the tokenizer does not list: {}; list it with its id "
             "among the added_tokens of its file, with \"special\": true",
             first->file, first->part, printable_line(first->token.content), why);
  auto id = static_cast<std::uint32_t>(listed.taken.size());
  for (SpecialNames::Named& each : next) {
    ZERO_CHECK(id < kMostTokens, "{}: {}: expected ids below {}", each.file, each.part,
               kMostTokens);
    each.token.id = id++;
    tokens.push_back(std::move(each.token));
  }
  return tokens;
}

}  // namespace zero
