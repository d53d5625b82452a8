// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string_view>
#include <utility>

#include "base/descriptor.h"

namespace zero {

/// A way to a descriptor's reader that never blocks in a write: a pipe that nobody empties, or a
/// terminal that is halted, must not keep a program from ending. Does not own the descriptor and
/// leaves its flags, which other processes may share, as they are. A closed pipe also raises
/// SIGPIPE, which a program ignores or dies of.
class Output {
 public:
  explicit Output(int descriptor);

  enum class Result {
    written,
    dropped,  ///< the reader took only a part, or nothing
    closed,   ///< nobody will ever read
    failed,   ///< for the reason in errno: a disk is full
  };
  /// Waits for room while `waits()` holds, which is asked ten times a second. Never throws.
  Result write(std::string_view text, const std::function<bool()>& waits) const noexcept;

 private:
  enum class Kind { file, socket, other };
  bool is_gone(int error) const noexcept;
  long attempt(std::string_view text) const noexcept;

  int descriptor_;
  Kind kind_;
  Descriptor twin_;  // the same pipe or terminal, opened not to block; -1 where that fails
};

/// Writes an answer to standard output, which may be a pipe or a full disk, and waits for room.
/// Throws zero::Error if `text` cannot be written whole.
void print(std::string_view text);

/// Writes what has room on standard output, else on standard error, else nowhere: for a thread that
/// must not wait.
void print_without_waiting(std::string_view text) noexcept;

/// Writes to standard error what printable_text() makes of it. Waits two seconds for room at most.
void print_to_stderr(std::string_view text) noexcept;
/// Prints to standard error; one that is full or closed changes no answer.
template <typename... Arguments>
void print_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  print_to_stderr(fmt::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace zero
