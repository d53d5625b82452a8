// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"

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

/// Nobody reads standard output any more. Only a process that ignores SIGPIPE meets it.
class OutputClosed : public Error {
 public:
  using Error::Error;
};

/// Writes an answer to standard output, which may be a pipe or a full disk, and waits for room.
/// Throws zero::Error if `text` cannot be written whole, of which OutputClosed is one.
void print(std::string_view text);

/// mpirun drops what it has not read when the last rank ends: ranks stay for so long once one of
/// them has told people why the job ends.
inline constexpr std::chrono::milliseconds kForReader{300};

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

/// A program's output for people: whole lines, and one progress line that is refreshed in place on
/// a terminal. Does not own the stream, and writes to its descriptor, if it has one.
class Console {
 public:
  enum class Mode {
    terminal,  ///< the progress line is refreshed in place
    lines,     ///< progress is printed as whole lines
    silent,    ///< no output: ranks other than the first
  };
  /// What becomes of lines that the stream's reader does not take.
  struct Reader {
    /// While the stream is full: whether to drop lines rather than wait for room. Null: wait.
    std::function<bool()> hurries{};
    /// Called once, if nobody reads the stream any more; nothing is printed from then on.
    std::function<void()> gone{};
    /// Called once, if a text cannot be written, with the reason in errno; later ones are tried.
    std::function<void(int error)> failed{};
  };
  Console(std::FILE* stream, Mode mode) : Console(stream, mode, Reader()) {}
  Console(std::FILE* stream, Mode mode, Reader reader);

  Mode mode() const { return mode_; }
  /// Prints a whole line; ends the progress line first.
  void line(const std::string& text);
  /// Replaces the progress line (terminal), at most ten times a second; does nothing in other
  /// modes.
  void refresh(const std::string& text);
  /// refresh() or, where progress is lines, a line every ten seconds, the first ten seconds after
  /// `start`, when the work began.
  void progress(const std::string& text, std::chrono::steady_clock::time_point start);
  /// Ends the progress line, so that other output starts on a fresh line.
  void end_progress();

 private:
  void write(const std::string& text);

  std::FILE* stream_;
  Mode mode_;
  Reader reader_;
  std::optional<Output> output_;  // nothing if the stream has no descriptor
  bool open_ = false;
  bool failed_ = false;
  std::chrono::steady_clock::time_point last_{};
};

/// Shows how far a piece of work is that takes seconds for a small model and minutes for a large
/// one: nothing in its first seconds, then Console::progress(), with speed and time left. For a
/// PassProgress. `what`: "hashing the model states"; `of`: what is counted, "values". `start`: when
/// the work began. `console` must outlive the function.
std::function<void(std::int64_t done, std::int64_t all)> work_progress(
    Console& console, std::string what, std::string of,
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now());

/// Whether a user sees standard output of this process immediately: on a terminal, also through
/// mpirun, which puts a terminal of its own in between.
bool on_terminal();
/// For a console on standard output: `terminal` if it is one, else `lines`.
Console::Mode output_mode();

}  // namespace zero
