// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "files/posix_file.h"

namespace zero::files {

/// One read or write of a range of a file, as the sequence of system calls that moves all of it:
/// while wants_call(), make next_call() and give its result to advance(). File and memory must
/// outlive the transfer.
class Transfer {
 public:
  enum class Kind : std::uint8_t { read, write };
  /// Through the page cache; or past the cache (O_DIRECT) in whole blocks of kBlock bytes, with
  /// the cache for the rest of a range and for memory that is not aligned.
  enum class Mode : std::uint8_t { cached, direct };
  /// The alignment of direct transfers in file and memory.
  static constexpr std::int64_t kBlock = PosixFile::kDirectBlock;

  static Transfer write(PosixFile& file, std::int64_t offset, std::span<const std::byte> bytes,
                        Mode mode);
  static Transfer read(PosixFile& file, std::int64_t offset, std::span<std::byte> out, Mode mode);

  struct Call {
    Kind kind;
    int descriptor;
    std::int64_t offset;
    std::span<std::byte> memory;  ///< not written by a Kind::write
  };
  bool wants_call() const { return error_.empty() && !memory_.empty(); }
  Call next_call();
  /// `result`: the number of bytes that the call moved, or the negative error number.
  void advance(std::int64_t result);
  const std::string& path() const { return file_->path(); }
  /// The message that names file, offset and reason; empty if nothing failed.
  const std::string& error() const { return error_; }

 private:
  Transfer(Kind kind, PosixFile& file, std::int64_t offset, std::span<std::byte> memory, Mode mode);
  void count(std::int64_t moved);
  /// The number of bytes that can go past the cache in one call from here; 0: none.
  std::size_t direct_bytes() const;

  Kind kind_;
  Mode mode_;
  bool direct_ = false;  // the call under way
  PosixFile* file_;
  std::int64_t offset_;  // of the rest
  std::span<std::byte> memory_;
  std::string error_;
};

/// Makes the calls of a transfer on the calling thread; returns its error. Asks a system that has
/// no resources for a call (EAGAIN) again for some seconds.
std::string error_of(Transfer transfer);
/// The same; throws the error as a zero::Error.
void run(Transfer transfer);

}  // namespace zero::files
