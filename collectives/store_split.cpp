// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/store_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace zero {

StoreSplit split(const StoreSeat& seat, std::string_view name, int color, int key) {
  struct Wish {
    int color = 0;
    int key = 0;
  };
  std::vector<Wish> wishes;
  for (const std::string& text : exchange(seat, name, fmt::format("{} {}", color, key))) {
    std::istringstream words(text);
    Wish& wish = wishes.emplace_back();
    words >> wish.color >> wish.key;
  }
  StoreSplit part;
  if (color < 0) return part;
  for (int rank = 0; rank < seat.size; ++rank) {
    if (wishes[static_cast<std::size_t>(rank)].color == color) part.members.push_back(rank);
  }
  std::ranges::stable_sort(part.members, {},
                           [&](int rank) { return wishes[static_cast<std::size_t>(rank)].key; });
  part.rank = static_cast<int>(std::ranges::find(part.members, seat.rank) - part.members.begin());
  return part;
}

}  // namespace zero
