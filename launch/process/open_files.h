// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zero {

/// How many files, connections included, this process may have open at a time.
struct OpenFileLimit {
  std::uint64_t soft = 0;  ///< holds
  std::uint64_t hard = 0;  ///< the most that the process may raise `soft` to
};

/// Raises this process's soft limit of open files to its hard limit, if the system lets it; returns
/// what holds after. Soft limits, 1024 as a rule, are meant for programs that use select(): a rank
/// holds connections, and two descriptors of each file of a checkpoint. Never throws.
OpenFileLimit raise_open_file_limit() noexcept;

/// Locks an open file, by whatever name it was opened, until its last descriptor is closed. Returns
/// 0, or the system's reason: EAGAIN if another open file has the lock. A lock of the open file,
/// rather than of the process, so that two runs of one process exclude each other too.
int lock_file(int file);

/// Whether another open file has that lock; unknown where the file system has no locks.
enum class LockState : std::uint8_t { free, held, unknown };

/// Of `file`, which has not taken the lock, and does not here. It may be open for reading alone.
LockState lock_state(int file);
inline bool is_locked(int file) { return lock_state(file) == LockState::held; }

/// Writes all of `text` to an open file. Throws zero::Error, naming `key` ("run.log") and `path`,
/// if it cannot.
void write_whole(int file, std::string_view text, std::string_view key, const std::string& path);

/// Throws zero::Error naming `key` unless a file can be created at `path`: the folder must exist
/// and be writable.
void check_writable(const std::string& path, const std::string& key);

/// Throws zero::Error, naming `key` and the file, if `path` is there and is anything but an empty
/// file or one that begins with `begin`, a `kind` ("trace of memory"): a device, a pipe, a file of
/// the user's. Opens regular files alone, and changes nothing.
void check_replaceable(const std::string& path, std::string_view begin, std::string_view key,
                       std::string_view kind);

/// `path`.N with the first N from 1 such that neither it nor it with `also` behind it is there.
std::string free_name(const std::string& path, const std::string& also = "");

}  // namespace zero
