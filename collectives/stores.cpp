// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/stores.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/message_text.h"

namespace zero {

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
