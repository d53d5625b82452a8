// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/mpi/comm.h"

namespace zero::mpi {

/// Sends keys and values between the ranks of a group, outside all collectives: set() sends a value
/// to every peer at once, and a peer receives it at its next call. Thread-safe. Made for small
/// values; one beyond MPI's eager limit travels only while both ranks make MPI calls.
class Mailbox {
 public:
  /// `group` is used by this mailbox alone.
  explicit Mailbox(Comm group) : group_(std::move(group)) {}
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void set(std::string_view key, std::string_view value);
  /// Receives arrived values, then returns those of `keys` that have none.
  std::vector<std::string> missing(const std::vector<std::string>& keys);
  /// The value of a key that has one.
  std::string at(const std::string& key);

  /// Tells the peers that this rank will send no more values. Never throws.
  void say_goodbye() noexcept;
  /// Receives arrived messages; true once all peers have said goodbye and all sends are complete.
  bool closed() noexcept;
  /// Leaks the memory of unfinished messages, and the group, because MPI may still access them.
  void abandon() noexcept { abandoned_ = true; }

 private:
  struct Sending {
    std::vector<char> bytes;  // read by MPI until every request is complete
    std::vector<MPI_Request> requests;
  };

  void send_to_peers(std::vector<char> bytes);
  void progress();

  std::mutex mutex_;
  Comm group_;
  std::map<std::string, std::string> values_;
  std::list<Sending> sending_;
  int goodbyes_ = 0;
  bool abandoned_ = false;
};

}  // namespace zero::mpi
