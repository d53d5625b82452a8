// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/descriptor.h"
#include "collectives/ranks_of_hosts.h"

namespace zero::mpi {

/// One end of the socket between a rank and the server of MPI's processes that it has forked.
/// Carries texts of any length.
class JobSocket {
 public:
  explicit JobSocket(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

  int descriptor() const { return descriptor_.get(); }

  /// False if the other end is gone.
  bool send(std::string_view text) {
    const std::uint64_t bytes = text.size();
    return put(&bytes, sizeof bytes) && put(text.data(), text.size());
  }
  /// Nothing if the other end is gone.
  std::optional<std::string> receive() {
    std::uint64_t bytes = 0;
    if (!take(&bytes, sizeof bytes)) return std::nullopt;
    std::string text(bytes, '\0');
    if (!take(text.data(), text.size())) return std::nullopt;
    return text;
  }

  /// Ends receive() on this end; the other end notices nothing.
  void stop_receiving() { ::shutdown(descriptor_.get(), SHUT_RD); }
  /// Ends receive() on both ends.
  void hang_up() { ::shutdown(descriptor_.get(), SHUT_RDWR); }
  /// The socket stays open until the process ends.
  void leave_open() { descriptor_.release(); }

 private:
  bool put(const void* bytes, std::size_t count) {
    const char* at = static_cast<const char*>(bytes);
    while (count > 0) {
      const ssize_t sent = ::send(descriptor_.get(), at, count, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return false;
      at += sent;
      count -= static_cast<std::size_t>(sent);
    }
    return true;
  }
  bool take(void* bytes, std::size_t count) {
    char* at = static_cast<char*>(bytes);
    while (count > 0) {
      const ssize_t got = ::recv(descriptor_.get(), at, count, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      at += got;
      count -= static_cast<std::size_t>(got);
    }
    return true;
  }

  Descriptor descriptor_;
};

/// The ranks of a job and their hosts, as one host's server describes them to MPI.
struct JobLayout {
  std::string name;
  RanksOfHosts ranks;
  int host = 0;  ///< this one's number

  /// For from(), in another process.
  std::string text() const;
  static JobLayout from(const std::string& text);
};

/// Serves the ranks of one host in place of MPI's launcher (PMIx), in a process of its own, until
/// the socket's other end is gone. Sends, for each rank of the host, the variables it needs: a "+"
/// and a NAME=VALUE a line; or a "!" and the reason why there are none. Then, at each fence of
/// the job, it sends what the host's ranks have for the other hosts, and expects in return a "+"
/// and what all hosts have, in their order, or a "!" if they cannot have it.
[[noreturn]] void serve_pmix(const JobLayout& layout, JobSocket socket) noexcept;

}  // namespace zero::mpi
