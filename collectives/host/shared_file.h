// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "collectives/host/process.h"

namespace zero::host {

inline constexpr std::int64_t kPage = 4096;

/// Where another process of the host finds a SharedFile, and how it knows that it found the one.
/// Travels as one line of text. It holds no path: the opening process builds the path, so a line
/// that was forged can name no file but those that a process has open.
struct Invitation {
  Process process{};
  std::string space;                     ///< the PID namespace that the process's number is of
  std::string users;                     ///< the user namespace that the process is in
  int descriptor = -1;                   ///< of that process
  std::int64_t bytes = 0;                ///< of memory, in whole pages
  std::array<std::uint64_t, 2> token{};  ///< random; lies in the file, behind the memory

  std::string text() const;
  /// Reads what text() wrote and nothing else. Throws zero::Error with the word that is wrong.
  static Invitation parse(std::string_view text);
};

/// An anonymous file of memory that processes of the same user on one host share: it has no name
/// and ends with its last user. Its size is sealed, so memory that is mapped stays there. Behind
/// the memory the file has one page more, for a random token that tells it from any other file.
class SharedFile {
 public:
  /// `bytes` of memory, in whole pages, zero at first. Throws zero::Error with the system's reason.
  SharedFile(const char* name, std::int64_t bytes);

  int descriptor() const { return file_.get(); }
  std::int64_t bytes() const { return bytes_; }
  /// What another process needs to open this file, while this one keeps it open.
  Invitation invitation() const;

 private:
  std::int64_t bytes_;
  std::array<std::uint64_t, 2> token_;
  Descriptor file_;
};

/// Opens the file behind an invitation for reading and writing. Throws zero::Error unless the
/// process is the one that is named and runs as this user, and the file is a SharedFile of this
/// user, of that size and with that token. Nothing is opened before it is known to be a regular
/// file of this user in memory: to open a pipe or a device can have effects.
Descriptor opened(const Invitation& invitation);

/// `text` from another process as it may stand in a message: cut, and without control characters.
std::string printable(std::string_view text);

}  // namespace zero::host
