// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/store.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"

namespace zero {

std::optional<std::string> Store::find(std::string_view key) {
  try {
    return get(key, std::chrono::milliseconds(0));
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<std::string> all_gather_texts(const StoreRank& self, std::string_view key,
                                          std::string_view mine) {
  const auto name = [&](int rank) { return fmt::format("{}/{}", key, rank); };
  std::vector<std::string> names;
  for (int rank = 0; rank < self.size; ++rank) names.push_back(name(rank));
  self.store.set(name(self.rank), mine);
  return self.store.get_all(names, self.timeout);
}

std::vector<std::string> Store::get_all(const std::vector<std::string>& keys,
                                        std::chrono::milliseconds timeout) {
  wait(keys, timeout);
  std::vector<std::string> values;
  for (const std::string& key : keys) values.push_back(get(key, timeout));
  return values;
}

StoreSplit split(const StoreRank& self, std::string_view name, int color, int key) {
  struct Wish {
    int color = 0;
    int key = 0;
  };
  std::vector<Wish> wishes;
  for (const std::string& text : all_gather_texts(self, name, fmt::format("{} {}", color, key))) {
    std::istringstream words(text);
    Wish& wish = wishes.emplace_back();
    words >> wish.color >> wish.key;
  }
  StoreSplit part;
  if (color < 0) return part;
  for (int rank = 0; rank < self.size; ++rank) {
    if (wishes[static_cast<std::size_t>(rank)].color == color) part.members.push_back(rank);
  }
  std::ranges::stable_sort(part.members, {},
                           [&](int rank) { return wishes[static_cast<std::size_t>(rank)].key; });
  part.rank = static_cast<int>(std::ranges::find(part.members, self.rank) - part.members.begin());
  return part;
}

}  // namespace zero
