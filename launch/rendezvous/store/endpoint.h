// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "launch/rendezvous/job_secret.h"

namespace zero {

/// Whether the host is the loopback, by its name or address.
bool is_loopback(const std::string& host);

/// Where the ranks of a job are, as its launcher says.
enum class Spread { unsaid, one_host, several_hosts };

/// The store of a job, and a rank that asks it.
struct StoreOptions {
  std::string host;  ///< of rank 0
  int port = 0;      ///< rank 0 alone may give 0: any that is free
  int rank = 0;
  int world = 1;
  std::string job{};  ///< its name, the same on all ranks; kMostJobBytes at most
  Spread spread = Spread::unsaid;
  std::chrono::milliseconds timeout{60'000};  ///< until rank 0 answers
  std::optional<JobSecret> secret{};          ///< the same on all ranks
  /// Rank 0's is told of connections that were dropped, every few seconds at most, on a thread
  /// of the store's.
  std::function<void(const std::string&)> report{};
};

/// Why `host` is not this host, for a message; nothing if one of its addresses is of this host.
/// Asks the name service.
std::optional<std::string> why_elsewhere(const std::string& host);

/// The name of the Unix socket at which a store of this user that has `port` is found on this host:
/// an abstract name, which is no file and ends with its socket.
std::string unix_socket_name(int port);

/// The process at the other end of a Unix socket.
struct PeerProcess {
  uid_t user = 0;
  pid_t process = 0;

  bool is_of_this_user() const;
  /// "process 7 of user id 1000".
  std::string text() const;
};
/// The process that connected to or listens at the other end, as the kernel says. Throws
/// zero::Error if it does not say.
PeerProcess peer_process(int descriptor);

/// Sets a TCP socket to send small messages at once, and to find out within about 8 seconds that a
/// peer's host has vanished though nothing is sent.
void watch_peer(int descriptor);

/// Raises this process's soft limit of open files to its hard limit. Throws zero::Error if that is
/// too low for a store of `ranks` ranks: each has a connection for itself and one for each of its
/// threads that ask at the same time, two as a rule.
void allow_connections(int ranks);

}  // namespace zero
