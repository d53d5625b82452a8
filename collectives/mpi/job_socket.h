// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/descriptor.h"

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

}  // namespace zero::mpi
