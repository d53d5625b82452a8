// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/block_windows.h"

#include <algorithm>
#include <mutex>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/seconds_since.h"
#include "partition/tensor_slice.h"

namespace zero {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes, of matrices

}  // namespace

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

BlockShards::BlockShards(Device& device, Communicator* group, const BlockFile::Size& size,
                         const TierFileOptions& file) {
  if (!file.folder.empty()) {
    file_.emplace(device, file, size);
    return;
  }
  const auto take = [&](auto& memory, auto&... of) {
    return memory.allocate(of..., size.bytes, DType::u8, MemoryClass::parameters, "matrices");
  };
  for (std::int64_t i = 0; i < size.blocks; ++i) {
    kept_.push_back(group == nullptr ? take(device) : take(*group, device));
  }
}

void BlockShards::open() {
  if (file_) file_->open();
}

void BlockShards::load(std::int64_t i, const std::function<void(const View& shard)>& fill) {
  if (file_) return file_->store(i, fill);
  fill(kept_[static_cast<std::size_t>(i)].view());
}

void BlockShards::finish_loading() {
  if (file_) file_->finish_storing();
}

void BlockShards::fetch() {
  if (file_) file_->fetch();
}

View BlockShards::use(std::int64_t i, Stream& user) {
  return file_ ? file_->use(i, user) : kept_[static_cast<std::size_t>(i)].view();
}

void BlockShards::release(Stream& user) noexcept {
  if (file_) file_->release(user);
}

BlockLayout::BlockLayout(const InferenceOps& ops, const Shapes& shapes, int rank, int ranks)
    : rank_(rank), ranks_(ranks) {
  for (std::size_t i = 0; i < kMatrices.size(); ++i) {
    Matrix& matrix = matrices_[i];
    matrix.shape = shapes[i];
    matrix.cut = ops.weight_cut(matrix.shape);
    const Slices::Range kept = groups(matrix, rank);
    matrix.first = std::min(kept.begin * matrix.cut.columns, matrix.shape.out);
    matrix.kept = matrix.shape;
    matrix.kept.out =
        std::min((kept.begin + kept.count) * matrix.cut.columns, matrix.shape.out) - matrix.first;
    matrix.bytes = ops.weight_bytes(matrix.shape);
    matrix.kept_bytes = ops.weight_bytes(matrix.kept);
    matrix.at = window_bytes_;
    matrix.kept_at = shard_bytes_;
    window_bytes_ += round_up(matrix.bytes, kAlignment);
    shard_bytes_ += round_up(matrix.kept_bytes, kAlignment);
  }
}

Slices::Range BlockLayout::groups(const Matrix& matrix, int rank) const {
  const TensorSlice::Range range =
      even_range(div_ceil(matrix.shape.out, matrix.cut.columns), rank, ranks_);
  return {range.begin, range.count};
}

std::vector<BlockLayout::Gather> BlockLayout::gathers(const View& shard, const View& window) const {
  std::vector<Gather> all;
  for (const Matrix& matrix : matrices_) {
    std::int64_t at = matrix.at;
    std::int64_t mine = matrix.kept_at;
    for (const std::int64_t bytes : matrix.cut.part_bytes) {
      Gather gather{{}, {window, {}}};
      std::int64_t total = 0;
      for (int rank = 0; rank < ranks_; ++rank) {
        const Slices::Range part = groups(matrix, rank);
        gather.full.ranges.push_back({at + part.begin * bytes, part.count * bytes});
        total += part.count * bytes;
      }
      gather.mine = shard.slice(mine, groups(matrix, rank_).count * bytes);
      at += total;
      mine += gather.mine.count();
      all.push_back(std::move(gather));
    }
  }
  return all;
}

BlockWindows::BlockWindows(Device& device, Communicator& group, const BlockLayout& layout,
                           const Size& size, BlockShards& shards)
    : device_(device), group_(group), layout_(layout), blocks_(size.blocks), shards_(shards) {
  const std::int64_t count = std::min(size.windows, size.blocks);
  const std::int64_t bytes = layout.window_bytes();
  memory_ = group
                .allocate_shared(device, checked_mul(count, bytes), DType::u8,
                                 MemoryClass::gathered, "windows")
                .buffer;
  for (std::int64_t i = 0; i < count; ++i) windows_.push_back({memory_.slice(i * bytes, bytes)});
}

BlockWindows::~BlockWindows() {
  try {
    device_.communication().synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the stream's next use throws the error
  }
}

void BlockWindows::prefetch() {
  Stream& communication = device_.communication();
  for (; gathered_ < used_ + std::ssize(windows_); ++gathered_) {
    Window& to = window(gathered_);
    const std::int64_t block = gathered_ % blocks_;
    communication.wait(to.released);
    const View shard = shards_.use(block, communication);
    for (const BlockLayout::Gather& gather : layout_.gathers(shard, to.memory)) {
      if (gather.full.total() == 0) continue;
      group_.all_gather(gather.mine, gather.full, communication,
                        {fmt::format("block {}", block), {}});
    }
    to.gathered = communication.record();
    shards_.release(communication);
  }
  shards_.fetch();
}

View BlockWindows::use(std::int64_t i) {
  ZERO_CHECK(used_ % blocks_ == i, "block {} is used; expected block {}, the next in order", i,
             used_ % blocks_);
  prefetch();
  const Window& of = window(used_);
  device_.compute().wait(of.gathered);
  return of.memory;
}

void BlockWindows::release() noexcept {
  try {
    window(used_).released = device_.compute().record();
  } catch (...) {  // NOLINT(bugprone-empty-catch): a failed stream, whose next use throws
  }
  ++used_;
}

}  // namespace zero
