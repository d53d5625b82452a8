// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/agree.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "collectives/store.h"

namespace zero {

void agree(Communicator& communicator, Device& device, std::string_view purpose,
           const std::function<void()>& body) {
  std::string mine;
  try {
    body();
  } catch (const std::exception& error) {
    mine = error.what();
    if (mine.empty()) mine = "unknown error";
  }
  const std::vector<std::string> all = exchange(communicator, device, mine, purpose);
  const auto first =
      std::find_if(all.begin(), all.end(), [](const std::string& text) { return !text.empty(); });
  if (first == all.end()) return;
  const bool alike =
      std::all_of(all.begin(), all.end(), [&](const std::string& text) { return text == *first; });
  throw AgreedError(alike || first->starts_with("[rank ")
                        ? *first
                        : fmt::format("[rank {}] {}", first - all.begin(), *first));
}

void require_same(Communicator& communicator, Device& device,
                  const std::map<std::string, std::string>& values) {
  const std::vector<std::string> all =
      exchange(communicator, device, nlohmann::json(values).dump(), "configuration and data");
  const auto reference = nlohmann::json::parse(all[0]).get<std::map<std::string, std::string>>();
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    auto other = nlohmann::json::parse(all[rank]).get<std::map<std::string, std::string>>();
    std::map<std::string, std::string> keys = reference;
    keys.insert(other.begin(), other.end());
    const auto show = [](const std::map<std::string, std::string>& map, const std::string& key) {
      const auto found = map.find(key);
      return found == map.end() ? std::string("nothing") : found->second;
    };
    for (const auto& [key, ignored] : keys) {
      if (show(other, key) == show(reference, key)) continue;
      throw AgreedError(
          fmt::format("rank {} has {} = {}, rank 0 has {}; start all ranks with the same "
                      "configuration and data",
                      rank, key, show(other, key), show(reference, key)));
    }
  }
}

}  // namespace zero
