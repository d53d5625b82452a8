// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

#include "device/view.h"

namespace zero::mpi {

/// Returns the ranks, by their numbers in the job, with which a message is still incomplete.
using Absent = std::function<std::vector<int>()>;

/// Called repeatedly while a rank waits for messages. May throw.
using WhileWaiting = std::function<void(const Absent&)>;

/// The messages of one exchange, all in flight at once. Views must live until wait() has returned.
/// Empty views send no message. Both ends cut long views alike.
class Transfers {
 public:
  struct Envelope {
    MPI_Comm group = MPI_COMM_NULL;
    int tag = 0;
    std::int64_t largest_message = 0;  ///< bytes
  };
  /// Every error begins with `who`, "[rank 3] all_gather(h.0)", and has `names`, which must outlive
  /// this, for the ranks of the group.
  Transfers(const Envelope& envelope, std::string who, const std::vector<int>& names)
      : group_(envelope.group),
        who_(std::move(who)),
        names_(names),
        tag_(envelope.tag),
        largest_message_(envelope.largest_message) {}
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void send(View view, int to);
  void receive(View view, int from);
  /// Returns once every message has been sent and received. Leaves the core to others meanwhile,
  /// and calls `while_waiting` repeatedly.
  void wait(const WhileWaiting& while_waiting);

 private:
  struct Message {
    int peer = 0;
    std::int64_t expected = -1;  // bytes; -1: a send
  };

  std::vector<int> absent() const;
  int name_of(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  void check_arrivals(const std::vector<MPI_Status>& statuses) const;
  [[noreturn]] void throw_first(int code, const std::vector<MPI_Status>& statuses) const;

  MPI_Comm group_;
  std::string who_;
  const std::vector<int>& names_;
  int tag_;
  std::int64_t largest_message_;
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;  // one per request
};

}  // namespace zero::mpi
