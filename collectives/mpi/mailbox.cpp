// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/mailbox.h"

#include <cstring>

#include "base/checked_math.h"
#include "collectives/mpi/comm.h"

namespace zero::mpi {
namespace {

constexpr int kMailTag = 0;  // the group carries nothing else

// A message: the key's length, the key, the value. An empty one is a goodbye.
std::vector<char> pack(std::string_view key, std::string_view value) {
  const std::uint64_t length = key.size();
  std::vector<char> bytes(sizeof(length) + key.size() + value.size());
  std::memcpy(bytes.data(), &length, sizeof(length));
  std::copy(key.begin(), key.end(), bytes.begin() + sizeof(length));
  std::copy(value.begin(), value.end(),
            bytes.begin() + static_cast<std::ptrdiff_t>(sizeof(length) + key.size()));
  return bytes;
}

}  // namespace

Mailbox::~Mailbox() {
  // MPI may still read messages in flight, so their memory and the group's handle are leaked.
  if (abandoned_ || !sending_.empty()) {
    static_cast<void>(new std::list<Sending>(std::move(sending_)));
    static_cast<void>(new Comm(std::move(group_)));
  }
}

void Mailbox::set(std::string_view key, std::string_view value) {
  const std::scoped_lock lock(mutex_);
  send_to_peers(pack(key, value));
  progress();
  values_.insert_or_assign(std::string(key), std::string(value));
}

std::vector<std::string> Mailbox::missing(const std::vector<std::string>& keys) {
  const std::scoped_lock lock(mutex_);
  progress();
  std::vector<std::string> absent;
  for (const std::string& key : keys) {
    if (!values_.contains(key)) absent.push_back(key);
  }
  return absent;
}

std::string Mailbox::at(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  return values_.at(key);
}

void Mailbox::say_goodbye() noexcept {
  try {
    const std::scoped_lock lock(mutex_);
    send_to_peers({});
  } catch (const std::exception&) {
    abandoned_ = true;  // a broken job: nothing more can be said
  }
}

bool Mailbox::closed() noexcept {
  try {
    const std::scoped_lock lock(mutex_);
    progress();
    return abandoned_ || (sending_.empty() && goodbyes_ == group_.size() - 1);
  } catch (const std::exception&) {
    abandoned_ = true;
    return true;
  }
}

void Mailbox::send_to_peers(std::vector<char> bytes) {
  if (group_.size() == 1) return;
  Sending& message = sending_.emplace_back();
  message.bytes = std::move(bytes);
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (peer == group_.rank()) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(message.bytes.data(), narrow<int>(message.bytes.size()), MPI_CHAR, peer,
                        kMailTag, group_.get(), &request));
    message.requests.push_back(request);
  }
}

void Mailbox::progress() {
  while (const auto bytes = take_message(group_.get(), MPI_ANY_SOURCE, kMailTag)) {
    if (bytes->empty()) {
      ++goodbyes_;
      continue;
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes->data(), sizeof(length));
    values_.insert_or_assign(bytes->substr(sizeof(length), length),
                             bytes->substr(sizeof(length) + length));
  }
  std::erase_if(sending_, [](Sending& message) {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(message.requests.size()), message.requests.data(), &done,
                          MPI_STATUSES_IGNORE));
    return done != 0;
  });
}

}  // namespace zero::mpi
