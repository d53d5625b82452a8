// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/store.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/message_text.h"

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

void InProcessStore::set(std::string_view key, std::string_view value) {
  {
    const std::scoped_lock lock(mutex_);
    values_.insert_or_assign(std::string(key), std::string(value));
  }
  changed_.notify_all();
}

std::string InProcessStore::get(std::string_view key, std::chrono::milliseconds timeout) {
  wait({std::string(key)}, timeout);
  const std::scoped_lock lock(mutex_);
  return values_.find(key)->second;  // keys are never removed
}

void InProcessStore::wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return closed_ || missing(keys).empty(); });
  const std::vector<std::string> absent = missing(keys);
  if (absent.empty()) return;
  ZERO_CHECK(!closed_, "store: nobody will set {}: {}", fmt::join(absent, ", "), *closed_);
  fail("store: nobody set {} within {}; check that every rank reached this point",
       fmt::join(absent, ", "), timeout_text(timeout));
}

void InProcessStore::close(std::string_view reason) {
  {
    const std::scoped_lock lock(mutex_);
    if (!closed_) closed_ = std::string(reason);
  }
  changed_.notify_all();
}

std::optional<std::string> InProcessStore::lost() {
  const std::scoped_lock lock(mutex_);
  return closed_;
}

std::vector<std::string> InProcessStore::missing(const std::vector<std::string>& keys) const {
  std::vector<std::string> absent;
  for (const std::string& key : keys) {
    if (!values_.contains(key)) absent.push_back(key);
  }
  return absent;
}

}  // namespace zero
