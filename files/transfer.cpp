// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "files/transfer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "files/disk_calls.h"

namespace zero::files {
namespace {

// Linux moves at most 2 GiB - 4 KiB per call; smaller calls stay interruptible.
constexpr std::size_t kLargestCall = std::size_t{1} << 30;
// Between two tries of a call for which the system has no resources, and how often.
constexpr std::chrono::milliseconds kCallPause{1};
constexpr int kCallPauses = 10'000;

bool is_aligned(std::uintptr_t value) { return value % Transfer::kBlock == 0; }

}  // namespace

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

}  // namespace zero::files
