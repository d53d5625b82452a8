// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/store.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "collectives/mpi/backoff.h"

namespace zero::mpi {

MpiStore::~MpiStore() {
  mailbox_->say_goodbye();
  runtime_->retire(std::move(mailbox_));
}

void MpiStore::set(std::string_view key, std::string_view value) { mailbox_->set(key, value); }

std::string MpiStore::get(std::string_view key, std::chrono::milliseconds timeout) {
  const std::string name(key);
  wait({name}, timeout);
  return mailbox_->at(name);
}

void MpiStore::wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  Backoff backoff;
  for (;;) {
    const std::vector<std::string> absent = mailbox_->missing(keys);
    if (absent.empty()) return;
    ZERO_CHECK(std::chrono::steady_clock::now() < deadline,
               "store: nobody set {} within {} ms; check that every rank reached this point",
               fmt::join(absent, ", "), timeout.count());
    backoff.pause();
  }
}

}  // namespace zero::mpi
