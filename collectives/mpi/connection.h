// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "collectives/host/transport.h"
#include "collectives/mpi/comm.h"
#include "collectives/mpi/hosts.h"
#include "collectives/mpi/link.h"
#include "collectives/mpi/messages.h"
#include "collectives/mpi/runtime.h"

namespace zero::mpi {

/// The connection between the ranks of one group: shared memory if one host holds them all; shared
/// memory and MPI messages if only some share a host; MPI messages alone otherwise, or if a system
/// refuses to share. Owns the transport and all that it uses, MPI's runtime too, because queued
/// work outlives the communicator.
class Connection {
 public:
  /// The ranks of a group, and inquiries among those of its job; null: the group is the job.
  struct Part {
    Comm group;
    std::shared_ptr<Inquiries> job{};
  };
  /// Collective over the group; takes ownership of it.
  Connection(std::shared_ptr<Runtime> runtime, Part part, const Options& options,
             std::shared_ptr<const CallContext> context);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const Link& link() const { return link_; }
  Transport& transport() { return *transport_; }
  /// Communicator::description().
  const std::string& description() const { return description_; }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  /// The memory that this process shares with the host's ranks; null if none.
  const std::shared_ptr<host::Memory>& memory() const { return memory_; }
  /// The transport, if it is the shared memory of one host; null otherwise.
  host::HostTransport* shared() { return shared_; }

  /// Every rank's line of text, in rank order. Collective, while no call is under way.
  std::vector<std::string> all_gather_texts(const std::string& mine) const;

 private:
  void choose(Runtime& runtime, HostPlan plan);
  /// Shares memory; returns "" or, equal on all ranks, the reason why not.
  std::string share(Runtime& runtime, HostPlan plan);
  void keep_messages_moving(host::HostTransport& transport);

  std::shared_ptr<Runtime> runtime_;  ///< MPI ends after the link that uses it
  Link link_;
  std::shared_ptr<const CallContext> context_;
  std::shared_ptr<host::Memory> memory_;
  std::unique_ptr<Transport> transport_;
  host::HostTransport* shared_ = nullptr;
  std::string description_;
  int local_rank_ = 0;
  int local_size_ = 1;
};

}  // namespace zero::mpi
