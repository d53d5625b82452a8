// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/descriptor.h"
#include "files/file_system.h"
#include "files/file_system_type.h"

namespace zero::files {

/// The system's text for an error number: "No space left on device".
std::string reason_of(int error);

/// Why direct transfers of a file would go through the page cache, though the system takes them;
/// empty: they go past it, for all that is known. `copies`: the transfers are writes, of a file
/// whose blocks have checksums and are copied rather than written over (btrfs). `block`: the
/// alignment of direct transfers in bytes, of statx(2), 0 if there are none; nothing if the system
/// does not tell.
std::string cached_because(Medium medium, bool copies, std::optional<std::uint32_t> block);

/// The transfer method of a disk's queues and the bytes that they have written since the process
/// started, for FileSystem::io_description(). Thread-safe.
class TransferCounts {
 public:
  /// Later transfers use `method`: "io_uring", or "pwrite: " and the reason. `note`: on the memory
  /// or the threads of the queue; may be empty.
  void use(std::string method, std::string note);
  void wrote_direct(std::int64_t bytes);
  void wrote_cached(std::int64_t bytes);
  /// A file takes no direct transfers; `reason` is the system's. Called once a file.
  void refused_direct(std::string reason);

  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::string method_ = "no queue";
  std::string note_;
  std::int64_t direct_ = 0;  // bytes
  std::int64_t cached_ = 0;
  std::int64_t refused_ = 0;  // files
  std::string reason_;        // of the newest refusal
};

/// An open regular file with two descriptors: one whose transfers go through the page cache, and
/// one for O_DIRECT, opened at its first use. Thread-safe.
class PosixFile {
 public:
  /// Direct transfers are aligned to so many bytes in file and memory. A disk with larger logical
  /// blocks refuses those that are not aligned to its own, and its files go through the cache from
  /// then on.
  static constexpr std::int64_t kDirectBlock = 4096;

  /// `flags` of open(2): an access mode, O_CREAT, O_EXCL, O_NOFOLLOW. Throws zero::Error naming the
  /// path and the system's reason. `counts` takes the bytes that queues write, and a refusal
  /// of O_DIRECT.
  PosixFile(const std::string& path, int flags, TransferCounts& counts);
  /// A file that is open. `path` is for messages, `access` the access mode of later descriptors.
  PosixFile(std::string path, Descriptor open_file, int access, TransferCounts& counts);
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;
  ~PosixFile();

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_.get(); }
  TransferCounts& counts() { return *counts_; }
  /// The descriptor for O_DIRECT; -1 if the system refuses.
  int direct_descriptor();
  /// The system has refused a direct transfer: direct_descriptor() is -1 from here on.
  /// `error`: why.
  void refuse_direct(int error);

  /// "ext4"; a number if the name is not known.
  std::string file_system() const { return name_of_type(file_system_); }
  /// Whether io_uring runs direct transfers of this file side by side; else it runs one at a time.
  bool uring_in_parallel() const { return takes_requests_side_by_side(file_system_) && !copies_; }

  /// Asks a file system that copies blocks rather than write over them (btrfs) to write over those
  /// of this file: only then does the space that reserve() takes do for every later write, and do
  /// direct writes go past the page cache. No failure if it declines. Takes the file's checksums
  /// away, and has an effect on empty files alone.
  void write_in_place();

  std::int64_t size() const;
  /// Gives the empty file its length and reserves the space, if the file system can. Throws, and
  /// raises no SIGXFSZ, if that is longer than this process may write.
  void reserve(std::int64_t bytes) const;
  /// Blocks until everything written is on the disk, whichever descriptor it went through.
  void sync() const;

 private:
  void open_direct();
  void refuse_direct_because(std::string reason);

  std::string path_;
  TransferCounts* counts_;
  int access_;
  Descriptor descriptor_;
  std::int64_t file_system_ = 0;  // its type, of statfs(2); 0 if unknown
  bool copies_ = false;           // each write takes new blocks
  Descriptor direct_{-1};
  std::optional<std::uint32_t> direct_block_;  // of statx(2), once opened_direct_
  std::once_flag opened_direct_;
  std::atomic<bool> refused_{false};
};

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

/// write() uses the page cache; transfers of a queue go past the cache where they can.
class PosixOutput final : public OutputFile {
 public:
  PosixOutput(const std::string& path, int flags, TransferCounts& counts)
      : file_(path, flags, counts) {}
  /// A file that is open; `path` is for messages.
  PosixOutput(std::string path, Descriptor descriptor, TransferCounts& counts);

  const std::string& path() const override { return file_.path(); }
  void write(std::int64_t offset, std::span<const std::byte> bytes) override;
  void sync() override { file_.sync(); }
  PosixFile& file() { return file_; }

 private:
  PosixFile file_;
};

/// read() uses the page cache; transfers of a queue go past the cache where they can.
class PosixInput final : public InputFile {
 public:
  PosixInput(const std::string& path, TransferCounts& counts);
  /// A file that is open; `path` is for messages.
  PosixInput(std::string path, Descriptor descriptor, TransferCounts& counts);

  const std::string& path() const override { return file_.path(); }
  std::int64_t size() const override { return file_.size(); }
  void read(std::int64_t offset, std::span<std::byte> out) override;
  PosixFile& file() { return file_; }

 private:
  PosixFile file_;
};

/// The PosixFile of a file that disk() opened; throws zero::Error if another file system opened it.
PosixFile& posix_file(OutputFile& file);
PosixFile& posix_file(InputFile& file);

}  // namespace zero::files
