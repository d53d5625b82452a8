// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/store.h"

#include <algorithm>
#include <sstream>

#include "collectives/host_values.h"

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

std::vector<std::string> all_gather_texts(Communicator& communicator, Device& device,
                                          std::string_view mine, std::string_view purpose) {
  const auto world = static_cast<std::size_t>(communicator.size());
  const auto self = static_cast<std::size_t>(communicator.rank());
  if (!device.has_memory()) {  // a plan: all ranks agree
    plan_host_values(device);
    return {world, std::string(mine)};
  }

  const Tag tag{std::string(purpose)};
  std::vector<std::int64_t> lengths(world);
  lengths[self] = static_cast<std::int64_t>(mine.size());
  host_all_gather(communicator, device,
                  Slices::even(View::of(std::span(lengths)), communicator.size()), tag);

  Slices texts;
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) {
    texts.ranges.push_back({total, length});
    total += length;
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(total));
  texts.buffer = View::of(std::span(bytes));
  std::copy(mine.begin(), mine.end(), bytes.begin() + texts.ranges[self].begin);
  host_all_gather(communicator, device, texts, tag);

  std::vector<std::string> result;
  for (const auto& [begin, length] : texts.ranges) {
    result.emplace_back(bytes.begin() + begin, bytes.begin() + begin + length);
  }
  return result;
}

}  // namespace zero
