// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/local/job.h"

namespace zero::local {

void Job::leave(int rank, std::string_view how) {
  const std::scoped_lock lock(mutex_);
  departures_[static_cast<std::size_t>(rank)] = std::string(how);
  departed_.push_back(rank);
  for (const auto& watcher : watchers_) {
    if (const auto changed = watcher.lock()) changed->notify_all();
  }
}

void Job::watch(std::weak_ptr<std::condition_variable> changed) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(watchers_, [](const auto& watcher) { return watcher.expired(); });
  watchers_.push_back(std::move(changed));
}

void Job::watch(std::weak_ptr<InProcessStore> store) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(stores_, [](const auto& watched) { return watched.expired(); });
  stores_.push_back(std::move(store));
}

void Job::close_stores(std::string_view reason) {
  const std::scoped_lock lock(mutex_);
  for (const auto& watched : stores_) {
    if (const auto store = watched.lock()) store->close(reason);
  }
}

}  // namespace zero::local
