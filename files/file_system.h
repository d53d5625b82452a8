// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace zero::files {

/// A file open for writing at 64-bit offsets. Several threads may write disjoint ranges at the same
/// time, as may several processes. Destruction closes the file and never throws.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  OutputFile() = default;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  virtual const std::string& path() const = 0;
  /// Writes all of `bytes` at `offset`. Throws zero::Error naming file, offset and reason.
  virtual void write(std::int64_t offset, std::span<const std::byte> bytes) = 0;
  /// Blocks until all bytes written through this object are on the disk.
  virtual void sync() = 0;
};

/// A file open for reading. Several threads may read at the same time.
class InputFile {
 public:
  virtual ~InputFile() = default;
  InputFile() = default;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  virtual const std::string& path() const = 0;
  virtual std::int64_t size() const = 0;
  /// Fills `out` from `offset`. Throws zero::Error naming file, offset and reason, also if the file
  /// ends first.
  virtual void read(std::int64_t offset, std::span<std::byte> out) = 0;
};

/// Transfers that run beside the thread that starts them, in any order. A failure belongs to its
/// transfer: wait() throws it. Used by one thread at a time; a thread that starts transfers must
/// not end before they do. Destruction waits for all transfers.
class TransferQueue {
 public:
  using Ticket = std::uint64_t;

  virtual ~TransferQueue() = default;
  TransferQueue() = default;
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  /// Starts to write `bytes` at `offset` of `file`. Both must stay, and `bytes` untouched, until
  /// wait() has returned for the ticket. Blocks only while the queue is full.
  virtual Ticket write(OutputFile& file, std::int64_t offset, std::span<const std::byte> bytes) = 0;
  /// Starts to fill `out` from `offset` of `file`; likewise.
  virtual Ticket read(InputFile& file, std::int64_t offset, std::span<std::byte> out) = 0;
  /// Gives the system what the queue holds back (QueueOptions::one_by_one).
  virtual void flush() {}
  /// Blocks until the transfer is over; flushes. Each ticket is waited for once. Throws zero::Error
  /// naming file, offset and reason if the transfer failed.
  virtual void wait(Ticket ticket) = 0;
};

/// How a queue transfers.
struct QueueOptions {
  int depth = 1;           ///< transfers in flight, > 0
  int threads = 4;         ///< > 0; that transfer without io_uring, as many as `depth` at most
  bool one_by_one = true;  ///< each transfer is given to the system at once; false: several with
                           ///< one call, by flush(), wait() and whenever the queue is full
  /// > 0; how long an io_uring that is out of resources, or tells of no end, is asked again. Then
  /// the waiting thread transfers, or the transfers that the system has not ended fail.
  std::chrono::milliseconds patience{10'000};
};

/// The two ends of a file without a name, for values that no later process needs: its space is free
/// again once both are closed, however the process ends.
struct ScratchFile {
  std::unique_ptr<OutputFile> output;
  std::unique_ptr<InputFile> input;
};

enum class PathKind : std::uint8_t { missing, file, folder, other };

/// An open folder, which is no symbolic link. Finds names in this folder even if another folder has
/// taken its path, and follows no symbolic links, so that removals stay inside. Every function
/// throws zero::Error naming the path and the system's reason.
class OpenFolder {
 public:
  virtual ~OpenFolder() = default;
  OpenFolder() = default;
  OpenFolder(const OpenFolder&) = delete;
  OpenFolder& operator=(const OpenFolder&) = delete;

  /// Sorted, without "." and "..".
  virtual std::vector<std::string> list() = 0;
  /// A symbolic link is PathKind::other, whatever its target.
  virtual PathKind kind_of(const std::string& name) = 0;
  virtual std::unique_ptr<OpenFolder> open(const std::string& name) = 0;
  /// Removes a symbolic link itself. No failure if the file is missing, as in FileSystem.
  virtual void remove_file(const std::string& name) = 0;
  virtual void remove_folder(const std::string& name) = 0;
  /// Blocks until the entries are on the disk.
  virtual void sync() = 0;
};

/// All access of checkpoints, weights, tiers and token files to the disk. A seam: tests record the
/// calls or make them fail. Every function throws zero::Error naming the path and the system's
/// reason.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;

  /// Makes a new, empty file of `bytes` and reserves its space if the file system can: a full disk
  /// fails here. Replaces a file or link of that name; the target of a link stays.
  virtual std::unique_ptr<OutputFile> create(const std::string& path, std::int64_t bytes) = 0;
  /// Opens an existing file, which is no symbolic link, to write parts of it.
  virtual std::unique_ptr<OutputFile> open_write(const std::string& path) = 0;
  virtual std::unique_ptr<InputFile> open_read(const std::string& path) = 0;
  /// Makes a file of `bytes` in `folder` that no name leads to, and reserves its space if the file
  /// system can: a full disk fails here. Reads as zeros until written. Its path, for messages:
  /// "FOLDER/(no name)".
  virtual ScratchFile create_scratch(const std::string& folder, std::int64_t bytes) = 0;

  /// Symbolic links are followed.
  virtual PathKind kind_of(const std::string& path) = 0;
  /// Whether the path itself is a symbolic link.
  virtual bool is_link(const std::string& path) = 0;
  /// The names in a folder, sorted, without "." and "..".
  virtual std::vector<std::string> list(const std::string& folder) = 0;
  /// No failure if the folder exists; a symbolic link to one is a failure.
  virtual void make_folder(const std::string& path) = 0;
  /// Renames within one file system. A file replaces a file; a folder replaces nothing.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// No failure if the file is missing: NFS may say so of one that the same call has removed.
  virtual void remove_file(const std::string& path) = 0;
  /// The folder must be empty. No failure if it is missing, likewise.
  virtual void remove_folder(const std::string& path) = 0;
  /// Throws if the path is a symbolic link. This default finds names by their paths, which suffices
  /// for file systems without links.
  virtual std::unique_ptr<OpenFolder> open_folder(const std::string& path);
  /// Blocks until the folder's entries (files made, renamed, removed in it) are on the disk.
  virtual void sync_folder(const std::string& path) = 0;
  /// Bytes that an unprivileged user may still write under `folder`; the largest number if the file
  /// system does not count them. Throws also if this process may not write there.
  virtual std::int64_t free_bytes(const std::string& folder) = 0;

  /// A queue for files that this FileSystem opened. Twice `options.depth` transfers are in flight
  /// where a queue holds files of several kinds of file systems.
  /// `memory`, which may be empty, holds the buffers of most transfers and is registered with the
  /// system if that is possible; it must outlive the queue. Ranges that are aligned to 4096 bytes
  /// in file and memory transfer fastest.
  virtual std::unique_ptr<TransferQueue> queue(std::span<std::byte> memory,
                                               const QueueOptions& options) = 0;
  /// For the log: the newest queue's transfer method, or "pwrite: " and the reason, and how all
  /// queues have written: "io_uring, O_DIRECT for all writes so far, registered buffers".
  /// Names the newest reason of files that take no direct transfers.
  virtual std::string io_description() = 0;
};

/// The disk of this machine. Lives as long as the process.
FileSystem& disk();

/// The folder that holds `path`; "." if the path names none.
std::string folder_of(const std::string& path);

/// The names of `path` of this machine: itself, then each with the first link of the one before, at
/// its end or on the way, replaced by where that leads. The last has no link, or one that cannot be
/// read, or is the 41st: Linux follows 40 links in a path, so these are a loop.
std::vector<std::string> names_by_links(const std::string& path);

/// Where `path` of this machine leads: a name without links, ".." and a "/" at its end, also if
/// nothing is there.
std::string behind_links(const std::string& path);

/// Whether both paths of this machine lead to one file or folder, which is there. Throws
/// zero::Error if the system does not say.
bool same_place(const std::string& path, const std::string& other);

/// Atomically renames the file `from` to `to`, in the same folder: a reader of `to` finds either
/// the old file or the new one, whole, even after a power cut.
void replace_file(FileSystem& files, const std::string& from, const std::string& to);

/// Throws zero::Error with the reason if `path` cannot become a file: its folder is missing or may
/// not be written to, or something other than a regular file has that name.
void check_target(FileSystem& files, const std::string& path);

}  // namespace zero::files
