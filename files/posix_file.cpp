// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "files/posix_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/host.h"
#include "base/message_text.h"
#include "files/disk_calls.h"

namespace zero::files {
namespace {

/// The file's flags, of ioctl_iflags(2); 0 if it has none.
int flags_of(int descriptor) {
  int flags = 0;
  return ::ioctl(descriptor, FS_IOC_GETFLAGS, &flags) == 0 ? flags : 0;
}

/// The alignment of direct transfers; 0: none are possible. Nothing before Linux 6.1, and where the
/// file system does not tell.
std::optional<std::uint32_t> direct_block_of([[maybe_unused]] int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0) {
    return status.stx_dio_offset_align;
  }
#endif
  return std::nullopt;
}

// O_NONBLOCK: opening a pipe by mistake must not wait for its other end. Only for that: io_uring
// would fail transfers that have to wait.
Descriptor opened(const std::string& path, int flags) {
  Descriptor descriptor(
      uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666); }));
  const int error = errno;
  const bool link = error == ELOOP && (flags & O_NOFOLLOW) != 0;
  ZERO_CHECK(descriptor.get() >= 0, "{}: cannot open for {}: {}{}", path,
             (flags & O_ACCMODE) == O_RDONLY ? "reading" : "writing",
             link ? "is a symbolic link" : reason_of(error),
             error == EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
  return descriptor;
}

// Linux moves at most 2 GiB - 4 KiB per call; smaller calls stay interruptible.
constexpr std::size_t kLargestCall = std::size_t{1} << 30;
// Between two tries of a call for which the system has no resources, and how often.
constexpr std::chrono::milliseconds kCallPause{1};
constexpr int kCallPauses = 10'000;

bool is_aligned(std::uintptr_t value) { return value % Transfer::kBlock == 0; }

}  // namespace

static_assert(sizeof(off_t) == 8, "files over 2 GiB need a 64-bit off_t");

std::string reason_of(int error) { return std::generic_category().message(error); }

std::string cached_because(Medium medium, bool copies, std::optional<std::uint32_t> block) {
  if (medium == Medium::memory) return "it is in memory";
  if (block == 0U) return "the file system has no direct transfers of it";
  return copies ? "btrfs writes files with checksums through the cache" : "";
}

void TransferCounts::use(std::string method, std::string note) {
  const std::lock_guard lock(mutex_);
  method_ = std::move(method);
  note_ = std::move(note);
}

void TransferCounts::wrote_direct(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  direct_ += bytes;
}

void TransferCounts::wrote_cached(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  cached_ += bytes;
}

void TransferCounts::refused_direct(std::string reason) {
  const std::lock_guard lock(mutex_);
  ++refused_;
  reason_ = std::move(reason);
}

std::string TransferCounts::text() const {
  const std::lock_guard lock(mutex_);
  const std::int64_t all = direct_ + cached_;
  std::string text = method_ + ", ";
  if (all == 0) {
    text += "nothing written yet";
  } else if (cached_ == 0) {
    text += "O_DIRECT for all writes so far";
  } else {
    text += fmt::format("O_DIRECT for {} of {} written so far", decimal_bytes(direct_),
                        decimal_bytes(all));
  }
  if (refused_ > 0) {
    text += fmt::format(" ({} {} without O_DIRECT: {})", refused_, refused_ == 1 ? "file" : "files",
                        reason_);
  }
  return note_.empty() ? text : text + ", " + note_;
}

PosixFile::PosixFile(const std::string& path, int flags, TransferCounts& counts)
    : PosixFile(path, opened(path, flags), flags & O_ACCMODE, counts) {}

PosixFile::PosixFile(std::string path, Descriptor open_file, int access, TransferCounts& counts)
    : path_(std::move(path)), counts_(&counts), access_(access), descriptor_(std::move(open_file)) {
  const DiskCall counted;
  struct stat status {};
  ZERO_CHECK(::fstat(descriptor(), &status) == 0 && S_ISREG(status.st_mode),
             "{}: is not a regular file", path_);
  ZERO_CHECK(::fcntl(descriptor(), F_SETFL, 0) == 0, "{}: cannot open: {}", path_,
             reason_of(errno));
  struct statfs holder {};
  if (::fstatfs(descriptor(), &holder) == 0) {
    file_system_ = static_cast<std::uint32_t>(holder.f_type);
  }
  copies_ = file_system_ == BTRFS_SUPER_MAGIC && (flags_of(descriptor()) & FS_NOCOW_FL) == 0;
}

// A server may have to hear of it.
PosixFile::~PosixFile() {
  const DiskCall counted;
  direct_ = Descriptor(-1);
  descriptor_ = Descriptor(-1);
}

void PosixFile::write_in_place() {
  if (!copies_) return;
  int flags = flags_of(descriptor()) | FS_NOCOW_FL;
  copies_ = ::ioctl(descriptor(), FS_IOC_SETFLAGS, &flags) != 0;
}

int PosixFile::direct_descriptor() {
  std::call_once(opened_direct_, [this] { open_direct(); });
  return refused_ ? -1 : direct_.get();
}

// Opened through the descriptor: the file may have been renamed. A second description of the file,
// because O_DIRECT is a property of the description.
void PosixFile::open_direct() {
  const DiskCall counted;
  direct_block_ = direct_block_of(descriptor());
  const std::string cached =
      cached_because(medium_of_type(file_system_), copies_ && access_ != O_RDONLY, direct_block_);
  if (!cached.empty()) return refuse_direct_because(cached);
  const std::string same = "/proc/self/fd/" + std::to_string(descriptor());
  direct_ = Descriptor(
      uninterrupted([&] { return ::open(same.c_str(), access_ | O_DIRECT | O_CLOEXEC); }));
  if (direct_.get() >= 0) return;
  if (errno == ENOENT) return refuse_direct_because("it takes a /proc, and none is there");
  refuse_direct(errno);
}

void PosixFile::refuse_direct(int error) {
  const bool coarse = error == EINVAL && direct_block_.value_or(0) > kDirectBlock;
  refuse_direct_because(coarse ? fmt::format("they take whole blocks of {} bytes, not of {}",
                                             *direct_block_, kDirectBlock)
                               : reason_of(error));
}

void PosixFile::refuse_direct_because(std::string reason) {
  if (!refused_.exchange(true)) counts_->refused_direct(std::move(reason));
}

std::int64_t PosixFile::size() const {
  const DiskCall counted;
  struct stat status {};
  ZERO_CHECK(::fstat(descriptor(), &status) == 0, "{}: cannot read its size: {}", path_,
             reason_of(errno));
  return status.st_size;
}

void PosixFile::reserve(std::int64_t bytes) const {
  if (bytes == 0) return;
  ZERO_CHECK(bytes < 0 || bytes <= longest_file(), "{}: cannot make room for {} bytes: {}", path_,
             bytes, reason_of(EFBIG));
  int result = uninterrupted([&] { return ::fallocate(descriptor(), 0, 0, bytes); });
  if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) {
    result = uninterrupted([&] { return ::ftruncate(descriptor(), bytes); });
  }
  ZERO_CHECK(result == 0, "{}: cannot make room for {} bytes: {}", path_, bytes, reason_of(errno));
}

void PosixFile::sync() const {
  ZERO_CHECK(uninterrupted([&] { return ::fsync(descriptor()); }) == 0,
             "{}: cannot flush to disk: {}", path_, reason_of(errno));
}

// io_uring would take the offset -1 for the descriptor's position.
Transfer::Transfer(Kind kind, PosixFile& file, std::int64_t offset, std::span<std::byte> memory,
                   Mode mode)
    : kind_(kind), mode_(mode), file_(&file), offset_(offset), memory_(memory) {
  if (offset < 0) advance(-EINVAL);
}

Transfer Transfer::write(PosixFile& file, std::int64_t offset, std::span<const std::byte> bytes,
                         Mode mode) {
  auto* const data = const_cast<std::byte*>(bytes.data());  // NOLINT: only read, as Call says
  return {Kind::write, file, offset, {data, bytes.size()}, mode};
}

Transfer Transfer::read(PosixFile& file, std::int64_t offset, std::span<std::byte> out, Mode mode) {
  return {Kind::read, file, offset, out, mode};
}

std::size_t Transfer::direct_bytes() const {
  const bool aligned = is_aligned(static_cast<std::uintptr_t>(offset_)) &&
                       is_aligned(reinterpret_cast<std::uintptr_t>(memory_.data()));
  if (mode_ == Mode::cached || !aligned) return 0;
  const std::size_t most = std::min(memory_.size(), kLargestCall);
  return most - most % static_cast<std::size_t>(kBlock);
}

Transfer::Call Transfer::next_call() {
  const std::size_t direct = direct_bytes();
  const int descriptor = direct > 0 ? file_->direct_descriptor() : -1;
  direct_ = descriptor >= 0;
  if (direct_) return {kind_, descriptor, offset_, memory_.first(direct)};
  return {kind_, file_->descriptor(), offset_,
          memory_.first(std::min(memory_.size(), kLargestCall))};
}

void Transfer::advance(std::int64_t result) {
  if (result > 0) {
    count(result);
    offset_ += result;
    memory_ = memory_.subspan(static_cast<std::size_t>(result));
    return;
  }
  if (result == -EINTR) return;
  // EFAULT: memory that a driver has pinned, which the disk's driver cannot pin in its turn.
  if ((result == -EINVAL || result == -EFAULT) && direct_) {
    return file_->refuse_direct(static_cast<int>(-result));
  }
  const bool writes = kind_ == Kind::write;
  if (result < 0) {
    const bool is_full = result == -ENOSPC || result == -EDQUOT;
    error_ = fmt::format("{}: cannot {} {} bytes at offset {}: {}{}", file_->path(),
                         writes ? "write" : "read", memory_.size(), offset_,
                         reason_of(static_cast<int>(-result)), is_full ? "; free space there" : "");
  } else if (writes) {
    error_ = fmt::format("{}: the system wrote none of {} bytes at offset {}", file_->path(),
                         memory_.size(), offset_);
  } else {
    error_ = fmt::format("{}: ends at offset {}, expected {} more bytes there: the file was cut",
                         file_->path(), offset_, memory_.size());
  }
}

void Transfer::count(std::int64_t moved) {
  if (kind_ == Kind::read || mode_ == Mode::cached) return;
  if (direct_) return file_->counts().wrote_direct(moved);
  file_->counts().wrote_cached(moved);
}

std::string error_of(Transfer transfer) {
  const DiskCall counted;
  int pauses = 0;
  while (transfer.wants_call()) {
    const Transfer::Call call = transfer.next_call();
    const ssize_t moved =
        call.kind == Transfer::Kind::write
            ? ::pwrite(call.descriptor, call.memory.data(), call.memory.size(), call.offset)
            : ::pread(call.descriptor, call.memory.data(), call.memory.size(), call.offset);
    if (moved < 0 && errno == EAGAIN && pauses++ < kCallPauses) {
      std::this_thread::sleep_for(kCallPause);
    } else {
      transfer.advance(moved < 0 ? -errno : moved);
    }
  }
  return transfer.error();
}

void run(Transfer transfer) {
  const std::string error = error_of(std::move(transfer));
  ZERO_CHECK(error.empty(), "{}", error);
}

PosixOutput::PosixOutput(std::string path, Descriptor descriptor, TransferCounts& counts)
    : file_(std::move(path), std::move(descriptor), O_WRONLY, counts) {}

void PosixOutput::write(std::int64_t offset, std::span<const std::byte> bytes) {
  run(Transfer::write(file_, offset, bytes, Transfer::Mode::cached));
}

PosixInput::PosixInput(const std::string& path, TransferCounts& counts)
    : file_(path, O_RDONLY, counts) {}

PosixInput::PosixInput(std::string path, Descriptor descriptor, TransferCounts& counts)
    : file_(std::move(path), std::move(descriptor), O_RDONLY, counts) {}

void PosixInput::read(std::int64_t offset, std::span<std::byte> out) {
  run(Transfer::read(file_, offset, out, Transfer::Mode::cached));
}

PosixFile& posix_file(OutputFile& file) {
  auto* const output = dynamic_cast<PosixOutput*>(&file);
  ZERO_CHECK(output != nullptr, "{}: this queue cannot write files of another file system",
             file.path());
  return output->file();
}

PosixFile& posix_file(InputFile& file) {
  auto* const input = dynamic_cast<PosixInput*>(&file);
  ZERO_CHECK(input != nullptr, "{}: this queue cannot read files of another file system",
             file.path());
  return input->file();
}

}  // namespace zero::files
