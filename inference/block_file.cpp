// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/block_file.h"

#include <algorithm>
#include <mutex>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/seconds_since.h"

namespace zero {

class BlockFile::Clock {
 public:
  void begin() { begun_ = std::chrono::steady_clock::now(); }
  void end(std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes_ += bytes;
    seconds_ += seconds_since(begun_);
  }
  BlockReads told(std::int64_t pass_bytes) const {
    const std::lock_guard lock(mutex_);
    return {pass_bytes, bytes_, seconds_};
  }

 private:
  std::chrono::steady_clock::time_point begun_{};  // of the transfer stream
  mutable std::mutex mutex_;
  std::int64_t bytes_ = 0;
  double seconds_ = 0;
};

BlockFile::BlockFile(Device& device, const TierFileOptions& options, const Size& size)
    : device_(device),
      size_(size),
      slots_(static_cast<std::size_t>(std::min(size.slots, size.blocks))),
      clock_(std::make_shared<Clock>()),
      file_(device, options) {
  ZERO_CHECK(device.memory() == MemorySpace::host,
             "device {}: blocks of weights in a file are read into host memory, where this device "
             "does not compute; keep them in its memory, or compute on the CPU",
             device.name());
  const std::int64_t each = round_up(size.bytes, TierFile::kBlock);
  memory_ = WindowMemory(device, checked_mul(std::ssize(slots_), each), kLabel);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].shard = size.bytes == 0
                          ? View(nullptr, 0, DType::u8, nullptr)
                          : memory_.view().slice(static_cast<std::int64_t>(i) * each, size.bytes);
  }
  for (std::int64_t i = 0; i < size.blocks; ++i) {
    blocks_.push_back(file_.reserve(size.bytes, DType::u8, MemoryClass::parameters, "matrices"));
  }
}

void BlockFile::open() {
  if (size_.bytes > 0) file_.open(memory_.view());
}

void BlockFile::store(std::int64_t i, const std::function<void(const View& shard)>& fill) {
  Slot& to = slot(i);
  to.ready.synchronize();
  fill(to.shard);
  if (size_.bytes == 0) return;
  file_.finish(file_.start_write(to.shard, blocks_[static_cast<std::size_t>(i)]));
  to.ready = device_.transfer().record();
}

void BlockFile::finish_storing() {
  for (const Slot& each : slots_) each.ready.synchronize();
}

void BlockFile::fetch() {
  Stream& transfer = device_.transfer();
  for (; fetched_ < used_ + std::ssize(slots_); ++fetched_) {
    if (size_.bytes == 0) continue;
    Slot& to = slot(fetched_);
    const View& from = blocks_[static_cast<std::size_t>(fetched_ % size_.blocks)];
    transfer.wait(to.released);
    transfer.submit_host("begin of a block's read", [clock = clock_] { clock->begin(); });
    file_.finish(file_.start_read(from, to.shard));
    transfer.submit_host(
        "end of a block's read",
        [clock = clock_, bytes = round_up(from.bytes(), TierFile::kBlock)] { clock->end(bytes); });
    to.ready = transfer.record();
  }
}

View BlockFile::use(std::int64_t i, Stream& user) {
  ZERO_CHECK(used_ % size_.blocks == i, "block {} is used; expected block {}, the next in order", i,
             used_ % size_.blocks);
  fetch();
  const Slot& of = slot(used_);
  user.wait(of.ready);
  return of.shard;
}

BlockReads BlockFile::reads() const { return clock_->told(file_.bytes()); }

void BlockFile::release(Stream& user) noexcept {
  try {
    slot(used_).released = user.record();
  } catch (...) {  // NOLINT(bugprone-empty-catch): a failed stream, whose next use throws
  }
  ++used_;
}

}  // namespace zero
