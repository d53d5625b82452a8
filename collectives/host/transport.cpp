// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/transport.h"

#include <algorithm>
#include <cstring>

#include "base/checked_math.h"
#include "base/host.h"

namespace zero::host {
namespace {

// Mixes a word into a hash (multiplication and shift of MurmurHash3's finaliser).
std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0xff51afd7ed558ccdULL;
  return hash ^ (hash >> 33);
}

std::uint64_t mixed(std::uint64_t hash, std::string_view text) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  for (; text.size() > kWord; text.remove_prefix(kWord)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data(), kWord);
    hash = mixed(hash, word);
  }
  std::uint64_t last = 0;
  std::memcpy(&last, text.data(), text.size());
  return mixed(hash, last);
}

// Half a megabyte, or a vector of the largest elements for each rank.
std::int64_t half_for(int ranks) {
  return round_up(std::max<std::int64_t>(512 << 10, std::int64_t{ranks} * kNormBlock * 8),
                  page_bytes());
}

}  // namespace

HostTransport::HostTransport(std::shared_ptr<Memory> memory,
                             std::vector<std::shared_ptr<Peer>> peers, ControlBlock control,
                             const Membership& membership, SpinPolicy spin_policy)
    : memory_(std::move(memory)),
      peers_(std::move(peers)),
      control_(std::move(control)),
      membership_(membership),
      spin_policy_(spin_policy),
      half_(half_for(membership.size)),
      staging_(static_cast<std::byte*>(memory_->region().allocate(2 * half_))),
      inputs_(static_cast<std::size_t>(membership.size)) {
  ZERO_CHECK(staging_ != nullptr,
             "[rank {}] no room for {} bytes of staging in a region of {} bytes", membership.name(),
             2 * half_, memory_->region().capacity());
}

HostTransport::~HostTransport() {
  control_.leave(membership_.rank);
  memory_->region().free(staging_, 2 * half_);
}

// Writes this rank's header and waits until all ranks have written theirs.
void HostTransport::begin_call(const CallArguments& call) {
  // A slow peer of the failed call may still read that call's header.
  if (control_.failed()) throw_failure(call);
  control_.next_call();
  CallHeader& header = control_.header(membership_.rank);
  std::uint64_t agreement = mixed(static_cast<std::uint64_t>(call.signature.operation),
                                  static_cast<std::uint64_t>(call.signature.dtype) << 32U |
                                      static_cast<std::uint32_t>(call.signature.detail));
  agreement = mixed(agreement, call.signature.purpose);
  for (const auto& [begin, count] : call.signature.counts) {
    agreement = mixed(agreement, static_cast<std::uint64_t>(count));
  }
  header.agreement = agreement;
  const DataPath path = call.target != nullptr ? write_destination(call) : DataPath::inlined;
  header.path = path == DataPath::shared ? path : write_values(call, header);
  pass_barrier(call);
  path_ = DataPath::inlined;
  bool agreed = true;
  for (int rank = 0; rank < membership_.size; ++rank) {
    const CallHeader& theirs = control_.header(rank);
    path_ = std::max(path_, theirs.path);
    agreed = agreed && theirs.agreement == agreement;
  }
  if (!agreed) throw_mismatch(call);
  if (call.receive != nullptr) check_pairs(call);
}

// Returns whether the destination of the values is shared memory.
DataPath HostTransport::write_destination(const CallArguments& call) {
  const View& buffer = call.target->buffer;
  const SharedMemory* const memory = shared_memory_of(buffer);
  const bool small =
      call.target->total() * size_of(call.signature.dtype) <= ControlBlock::kInlineBytes;
  if (memory == nullptr && small) return DataPath::inlined;
  Destination mine;
  if (memory != nullptr) {
    const View own = call.target->of(membership_.rank);
    mine.offset = static_cast<const std::byte*>(buffer.data()) - memory->mapping->data();
    mine.memory = memory->number;
    mine.in_place = own.empty() || own.data() == call.whole.data() ? 1 : 0;
  } else {
    mine.offset = memory_->region().offset_of(buffer.data(), buffer.bytes());
  }
  for (const auto& [begin, count] : call.target->ranges) {
    mine.layout = mixed(mine.layout, static_cast<std::uint64_t>(begin));
  }
  destination(membership_.rank) = mine;
  return memory != nullptr ? DataPath::shared : DataPath::inlined;
}

const HostTransport::SharedMemory* HostTransport::shared_memory_of(const View& view) const {
  const auto* const data = static_cast<const std::byte*>(view.data());
  const auto found = std::ranges::find_if(shared_, [&](const SharedMemory& memory) {
    return !memory.user.expired() && data >= memory.mapping->data() &&
           data + view.bytes() <= memory.mapping->data() + memory.mapping->bytes();
  });
  return found == shared_.end() || view.empty() ? nullptr : &*found;
}

// The values themselves if they fit behind the header, or the place where peers find them.
DataPath HostTransport::write_values(const CallArguments& call, CallHeader& header) {
  if (call.slices != nullptr) return write_table(call);
  const std::int64_t bytes = call.whole.bytes();
  header.offset = 0;
  if (bytes <= ControlBlock::kInlineBytes) {
    if (bytes > 0) {
      std::memcpy(control_.body(membership_.rank), call.whole.data(),
                  static_cast<std::size_t>(bytes));
    }
    return DataPath::inlined;
  }
  header.offset = memory_->region().offset_of(call.whole.data(), bytes);
  return header.offset < 0 ? DataPath::staged : DataPath::direct;
}

// The same for one slice per rank.
DataPath HostTransport::write_table(const CallArguments& call) {
  const std::int64_t element = size_of(call.signature.dtype);
  const View& buffer = call.slices->buffer;
  const std::int64_t start = memory_->region().offset_of(buffer.data(), buffer.bytes());
  const bool inlined = call.slices->total() * element <= ControlBlock::kInlineBytes;
  std::int64_t at = membership_.size * static_cast<std::int64_t>(sizeof(TableEntry));
  for (int rank = 0; rank < membership_.size; ++rank) {
    const auto [begin, count] = call.slices->ranges[static_cast<std::size_t>(rank)];
    TableEntry& entry = table(membership_.rank)[rank];
    entry = {inlined ? at : start + begin * element, count, 0};
    if (call.receive != nullptr) {
      entry.expected = call.receive->ranges[static_cast<std::size_t>(rank)].count;
    }
    if (!inlined || count == 0) continue;
    const auto* const from = static_cast<const std::byte*>(buffer.data()) + begin * element;
    std::memcpy(control_.body(membership_.rank) + at, from,
                static_cast<std::size_t>(count * element));
    at += count * element;
  }
  if (inlined) return DataPath::inlined;
  return start < 0 ? DataPath::staged : DataPath::direct;
}

void HostTransport::pass_barrier(const CallArguments& call) {
  if (control_.failed()) throw_failure(call);
  control_.arrive();
  const auto all_arrived = [this] { return control_.all_arrived(); };
  if (all_arrived() || spin_policy_.outlasts(all_arrived, idle_)) return;
  constexpr std::chrono::milliseconds kShortestNap{1};
  constexpr std::chrono::milliseconds kBetweenChecks{1000};  // a failing rank can first report why
  std::chrono::milliseconds unchecked{0};
  LongWait wait(*context_, behind_);
  std::optional<std::chrono::steady_clock::time_point> overdue;
  for (auto nap = kShortestNap; !all_arrived(); nap = std::min(2 * nap, longest_nap_)) {
    if (control_.failed()) throw_failure(call);
    idle_();
    control_.sleep(wait.until_due(nap));
    check_limits(wait, call, overdue);
    unchecked += nap;
    if (unchecked < kBetweenChecks) continue;
    check_peers(call);
    unchecked = {};
  }
}

/// Checks the limits of a wait whose timeout came at `overdue`, if it has come.
void HostTransport::check_limits(LongWait& wait, const CallArguments& call,
                                 std::optional<std::chrono::steady_clock::time_point>& overdue) {
  const LongWait::Due due = wait.due();
  if (due == LongWait::Due::nothing) return;
  Waiting state = waiting(call);
  if (state.absent.empty()) return;
  if (due == LongWait::Due::warning) return wait.warn(state);
  const auto now = std::chrono::steady_clock::now();
  if (!overdue) overdue = now;
  if (blame_) {
    auto ranks = blame_(absent(), now - *overdue);
    if (!ranks) return;
    state.absent = *std::move(ranks);
  }
  throw Error(wait.overdue(state));
}

std::string HostTransport::staging_offset() const {
  return std::to_string(memory_->region().offset_of(staging_, 2 * half_));
}

// Copies elements [begin, begin + count) of each slice to one half of the staging area.
void HostTransport::stage(const CallArguments& call, std::int64_t begin, std::int64_t count) {
  part_begin_ = begin;
  part_count_ = count;
  part_half_ = 1 - part_half_;
  if (control_.header(membership_.rank).path != DataPath::staged) return;
  const std::int64_t element = size_of(call.signature.dtype);
  std::byte* to = staging_ + part_half_ * half_;
  const int views = call.slices != nullptr ? membership_.size : 1;
  for (int i = 0; i < views; ++i, to += count * element) {
    const View view = call.slices != nullptr ? call.slices->of(i) : call.whole;
    const std::int64_t there = std::clamp<std::int64_t>(view.count() - begin, 0, count);
    if (there == 0 || i == (call.slices != nullptr ? membership_.rank : -1)) continue;
    std::memcpy(to, view.slice(begin, there).data(), static_cast<std::size_t>(there * element));
  }
}

std::byte* HostTransport::staging_of(int rank, int half, std::int64_t offset, std::int64_t bytes) {
  if (rank == membership_.rank) return staging_ + half * half_ + offset;
  const auto at = static_cast<std::size_t>(rank);
  return memory_->access(*peers_[at], stagings_[at] + half * half_ + offset, bytes);
}

View HostTransport::part(const CallArguments& call, int peer, std::int64_t begin,
                         std::int64_t count) {
  const DType dtype = call.signature.dtype;
  if (peer == membership_.rank) {
    return (call.slices != nullptr ? call.slices->of(peer) : call.whole).slice(begin, count);
  }
  const std::int64_t element = size_of(dtype);
  const std::int64_t bytes = count * element;
  const CallHeader& theirs = control_.header(peer);
  const std::int64_t offset =
      begin * element +
      (call.slices != nullptr ? table(peer)[membership_.rank].offset : theirs.offset);
  std::byte* data = nullptr;
  if (theirs.path == DataPath::inlined) {
    data = control_.body(peer) + offset;
  } else if (theirs.path == DataPath::direct) {
    data = memory_->access(*peers_[static_cast<std::size_t>(peer)], offset, bytes);
  } else {
    const std::int64_t skipped = call.index(membership_.rank) * part_count_ + begin - part_begin_;
    data = staging_of(peer, part_half_, skipped * element, bytes);
  }
  return {data, count, dtype, nullptr};
}

}  // namespace zero::host
