// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/host_blocks.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"
#include "base/host.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"

namespace zero {
namespace {

/// Blocks of a round. The memory, 12 MiB, has three rounds: one that other ranks may still use, one
/// that is verified, and one that the disk reads.
constexpr std::int64_t kMostHeld = 4;
constexpr std::int64_t kRounds = 3;
constexpr std::int64_t kElements = kBlockBytes / std::int64_t{sizeof(float)};
constexpr std::string_view kLabel = "blocks that are read";

std::int64_t held_of(std::int64_t blocks) { return std::clamp<std::int64_t>(blocks, 1, kMostHeld); }

/// The ranks of this host; null if there is one rank.
std::unique_ptr<Communicator> ranks_of_host(Communicator& world, Device& device) {
  if (world.size() == 1) return nullptr;
  const std::vector<std::string> hosts =
      all_gather_texts(world, device, host_name(), "hosts of ranks");
  const auto mine = hosts.begin() + world.rank();
  const auto color = std::find(hosts.begin(), hosts.end(), *mine) - hosts.begin();
  return world.split(static_cast<int>(color), world.rank());
}

SharedBuffer allocate(Communicator& host, Device& device, std::int64_t held) {
  const std::int64_t count = kRounds * held * kElements;
  if (device.memory() == MemorySpace::host && host.size() > 1)
    return host.allocate_shared(device, count, DType::fp32, MemoryClass::staging, kLabel);
  return {device.allocate_host(count, DType::fp32, MemoryClass::staging, kLabel), false};
}

}  // namespace

HostBlocks::HostBlocks(Communicator& world, Device& device, files::FileSystem& disk,
                       std::int64_t blocks)
    : device_(device),
      split_(ranks_of_host(world, device)),
      host_(split_ ? *split_ : world),
      held_(held_of(blocks)),
      readers_(std::min<std::int64_t>(host_.size(), held_)),
      each_(held_ / readers_),
      memory_(allocate(host_, device, held_)),
      queue_(disk.queue(std::as_writable_bytes(memory_.buffer.view().as<float>()),
                        {.depth = narrow<int>(2 * each_)})) {}

void HostBlocks::plan(Device& device, std::int64_t blocks) {
  device.allocate_host(kRounds * held_of(blocks) * kElements, DType::fp32, MemoryClass::staging,
                       kLabel);
}

CheckpointFailure HostBlocks::read(CheckpointReader& reader, const Needs& needs, const Use& use) {
  files_.clear();
  failure_ = {};
  find_needed(reader, needs);
  const auto blocks = std::ssize(needed_);
  const std::int64_t rounds = div_ceil(blocks, per_round());
  if (rounds > 0) start(reader, 0);
  for (std::int64_t round = 0; round < rounds; ++round) {
    // Its memory was that of the round before the last, which all ranks have used: they have since
    // shared the last.
    if (round + 1 < rounds) start(reader, round + 1);
    verify(reader, round);
    if (!share(round)) break;
    const std::int64_t end = std::min(blocks, (round + 1) * per_round());
    for (std::int64_t i = round * per_round(); i < end && !failure_; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (mine_[static_cast<std::size_t>(needed_[at])] == 0) continue;
      failure_ = checkpoint_failure_of([&] { use(needed_[at], place(reader, at)); });
    }
  }
  for (std::int64_t round = 0; round < std::ssize(reading_); ++round) verify(reader, round);
  files_.clear();
  return failure_;
}

/// A failure to ask is told at the end: the ranks of the host go on together.
void HostBlocks::find_needed(const CheckpointReader& reader, const Needs& needs) {
  mine_.assign(static_cast<std::size_t>(reader.blocks().count()), 0);
  failure_ = checkpoint_failure_of([&] {
    for (std::size_t i = 0; i < mine_.size(); ++i)
      mine_[i] = needs(static_cast<std::int64_t>(i)) ? 1 : 0;
  });
  std::vector<std::int32_t> all = mine_;
  if (host_.size() > 1 && !all.empty()) {
    host_all_reduce(host_, device_, View::of(std::span(all)), ReduceOp::max,
                    {"blocks that ranks need", {}});
  }
  needed_.clear();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != 0) needed_.push_back(static_cast<std::int64_t>(i));
  }
}

std::span<std::byte> HostBlocks::place(const CheckpointReader& reader, std::size_t at) const {
  const auto i = static_cast<std::int64_t>(at);
  const std::int64_t slot = i / per_round() % kRounds * held_ + i % per_round();
  return std::as_writable_bytes(memory_.buffer.slice(slot * kElements, kElements).as<float>())
      .first(static_cast<std::size_t>(reader.blocks().at(needed_[at]).bytes));
}

/// Submits this rank's reads of a round.
void HostBlocks::start(CheckpointReader& reader, std::int64_t round) {
  if (host_.rank() >= readers_) return;
  const std::int64_t first = round * per_round() + host_.rank() * each_;
  const std::int64_t end = std::min(first + each_, std::ssize(needed_));
  for (std::int64_t i = first; i < end && !failure_; ++i) {
    const auto at = static_cast<std::size_t>(i);
    failure_ = checkpoint_failure_of([&] {
      const Block block = reader.blocks().at(needed_[at]);
      auto& file = files_[block.file];
      if (!file) file = reader.open(block.file);
      reading_of(round).push_back({at, queue_->read(*file, block.begin, place(reader, at))});
    });
  }
}

/// Waits for this rank's reads of a round, verifies the blocks, and closes the files that it has
/// passed.
void HostBlocks::verify(CheckpointReader& reader, std::int64_t round) {
  for (const auto& [at, ticket] : std::exchange(reading_of(round), {})) {
    CheckpointFailure failure =
        checkpoint_failure_of([&, number = needed_[at], at = at, of = ticket] {
          queue_->wait(of);
          reader.check_block(number, place(reader, at));
        });
    if (!failure_) failure_ = std::move(failure);
  }
  const std::vector<Reading>& next = reading_of(round + 1);
  if (next.empty()) return;
  const std::size_t file = reader.blocks().at(needed_[next.front().at]).file;
  files_.erase(files_.begin(), files_.lower_bound(file));
}

/// Gives every rank of the host the blocks of a round; false if a rank has failed.
bool HostBlocks::share(std::int64_t round) {
  if (host_.size() == 1) return !failure_;
  const Tag tag{std::string(kLabel), {}};
  std::int32_t failed = failure_ ? 1 : 0;
  host_all_reduce(host_, device_, View::of(std::span(&failed, 1)), ReduceOp::sum, tag);
  if (failed > 0) return false;
  if (memory_.shared) return true;
  Slices blocks{memory_.buffer.slice(round % kRounds * held_ * kElements, held_ * kElements), {}};
  for (std::int64_t rank = 0; rank < host_.size(); ++rank) {
    blocks.ranges.push_back(
        {std::min(rank, readers_) * each_ * kElements, rank < readers_ ? each_ * kElements : 0});
  }
  host_all_gather(host_, device_, blocks, tag);
  return true;
}

}  // namespace zero
