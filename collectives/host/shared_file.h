// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <string>

#include "base/descriptor.h"
#include "collectives/host/process.h"

namespace zero::host {

/// The data by which another process of the host finds a SharedFile and recognizes it, sent as one
/// line of text.
struct Invitation {
  Process process{};
  std::string space;                     ///< the PID namespace of the process's number
  std::string users;                     ///< the user namespace of the process
  int descriptor = -1;                   ///< number of the open file in that process
  std::int64_t bytes = 0;                ///< of memory, in whole pages
  std::array<std::uint64_t, 2> token{};  ///< random; stored in the file behind the memory

  std::string text() const;
  /// Parses the output of text(). Throws zero::Error on any other text.
  static Invitation parse(const std::string& text);
};

/// An anonymous file of memory that processes of the same user on one host share. The file has no
/// name and lives until its last user closes it. One more page behind the memory holds a random
/// token that tells the file from any other.
class SharedFile {
 public:
  /// Makes a file of `bytes` zero bytes, in whole pages. Throws zero::Error with the system's
  /// reason.
  SharedFile(const char* name, std::int64_t bytes);

  int descriptor() const { return file_.get(); }
  std::int64_t bytes() const { return bytes_; }
  /// Lets another process open this file while this one keeps it open.
  Invitation invitation() const;

 private:
  std::int64_t bytes_;
  std::array<std::uint64_t, 2> token_;
  Descriptor file_;
};

/// Opens the file behind an invitation for reading and writing. Throws zero::Error unless the
/// process is the one named and runs as this user, and the file has this owner, that size and that
/// token.
Descriptor opened(const Invitation& invitation);

/// First character of a line that says why a rank cannot do its part, sent in place of the line
/// that its peers expect.
inline constexpr char kRefused = '!';

/// Runs `work`, which returns a line, and turns an exception into a refusal, so that a rank always
/// comes to the exchange in which its peers wait for its line.
template <typename Work>
std::string attempt(Work work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return kRefused + std::string(error.what());
  } catch (...) {
    return kRefused + std::string("an error without a message");
  }
}

}  // namespace zero::host
