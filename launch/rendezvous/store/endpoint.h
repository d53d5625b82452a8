// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <boost/system/error_code.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "launch/rendezvous/job_secret.h"

namespace zero {

/// Whether the host is the loopback, by name or address.
bool is_loopback(const std::string& host);

/// The spread of a job's ranks over hosts, according to its launcher.
enum class Spread { unsaid, one_host, several_hosts };

/// The limits of the connections to a store's server. A connection beyond one is dropped and
/// reported.
struct StoreLimits {
  std::chrono::milliseconds handshake{5'000};  ///< until a client has introduced itself
  /// From the first byte of a request to its last, and for a client to take an answer.
  std::chrono::milliseconds message{30'000};
  /// Connections that have not introduced themselves; a newer one replaces the oldest.
  std::size_t unproven = 128;
};

/// The options of a job's store, for one rank.
struct StoreOptions {
  std::string host;  ///< of rank 0
  int port = 0;      ///< rank 0 alone may give 0: any free port
  int rank = 0;
  int world = 1;
  std::string job{};  ///< its name, the same on all ranks; kMostJobBytes at most
  Spread spread = Spread::unsaid;
  std::chrono::milliseconds timeout{60'000};  ///< until rank 0 answers
  std::optional<JobSecret> secret{};          ///< the same on all ranks
  /// Receives lines for people: of a wait that lasts longer than `silence`, one, on the waiting
  /// thread; rank 0's also of dropped connections, every few seconds at most, on a thread of the
  /// store.
  std::function<void(const std::string&)> report{};
  std::chrono::milliseconds silence{10'000};
  std::string hint{};  ///< ends the message that rank 0 does not answer
  /// A rank whose host has vanished, or is cut off, is lost after about so long; at least a second.
  std::chrono::milliseconds vanished{8'000};
  StoreLimits limits{};  ///< rank 0's server's
};

/// The reason why `host`, rank 0's, has no address here, for a message with what to do; nothing if
/// it has one. Asks the name service.
std::optional<std::string> why_unknown(const std::string& host);

/// The reason why `host` is not this host, for a message; nothing if one of its addresses belongs
/// to this host. Asks the name service.
std::optional<std::string> why_elsewhere(const std::string& host);

/// Whether ranks that meet by TCP meet on the loopback: if the launcher reports one host, or if
/// rank 0's host is the loopback and the launcher does not report several.
bool meets_on_loopback(const std::string& host, Spread spread);

/// The name of the Unix socket of this user's store with `port` on this host: an abstract name,
/// which has no file and disappears with its socket.
std::string unix_socket_name(int port);

/// The process at the other end of a Unix socket.
struct PeerProcess {
  uid_t user = 0;
  pid_t process = 0;

  bool is_of_this_user() const;
  /// "process 7 of user id 1000".
  std::string text() const;
};
/// The process that connected to or listens at the other end, as the kernel reports it. Throws
/// zero::Error if the kernel does not report one.
PeerProcess peer_process(int descriptor);

/// Sets a TCP socket to send small messages at once, and to detect within about `vanished` that a
/// peer's host has vanished, even if no data is sent. A process that is stopped has not, as long as
/// its system has room for what is sent to it: some 200 kB as systems come.
void watch_peer(int descriptor, std::chrono::milliseconds vanished);

/// How a connection has ended that its peer did not end in good order.
enum class PeerLoss {
  ended,        ///< the peer's system has ended it: its process is gone
  unreachable,  ///< the peer's system answers no more, whatever is said on the way to it
  reset,        ///< somebody between has cut it, or changed bytes; the process may be there
};
/// Of an error of a connection that was there, not of an attempt to make one.
PeerLoss peer_loss_of(const boost::system::error_code& error);

/// Raises this process's soft limit of open files to its hard limit. Throws zero::Error if that is
/// too low for a store of `ranks` ranks: each has a connection for itself and one for each of its
/// threads that ask at the same time, two as a rule.
void allow_connections(int ranks);

}  // namespace zero
