// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/group.h"

#include <algorithm>
#include <cstring>

#include "base/checked_math.h"
#include "base/page.h"

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

Group::Group(std::shared_ptr<Memory> memory, std::vector<std::shared_ptr<Peer>> peers, Board board,
             const Membership& seat, SpinPolicy spin_policy)
    : memory_(std::move(memory)),
      peers_(std::move(peers)),
      board_(std::move(board)),
      seat_(seat),
      spin_policy_(spin_policy),
      half_(half_for(seat.size)),
      staging_(static_cast<std::byte*>(memory_->region().allocate(2 * half_))),
      inputs_(static_cast<std::size_t>(seat.size)),
      claims_(inputs_.size()),
      destinations_(inputs_.size()) {
  ZERO_CHECK(staging_ != nullptr,
             "[rank {}] no room for {} bytes of staging in a region of {} bytes", seat.name(),
             2 * half_, memory_->region().capacity());
}

Group::~Group() {
  board_.leave(seat_.rank);
  memory_->region().free(staging_, 2 * half_);
}

// Posts this rank's offer and waits until all ranks have posted theirs.
void Group::open(const CallArguments& offer) {
  board_.turn();
  Notice& notice = board_.notice(seat_.rank);
  std::uint64_t agreement = mixed(static_cast<std::uint64_t>(offer.intent.operation),
                                  static_cast<std::uint64_t>(offer.intent.dtype) << 32U |
                                      static_cast<std::uint32_t>(offer.intent.detail));
  agreement = mixed(agreement, offer.intent.purpose);
  for (const auto& [begin, count] : offer.intent.counts) {
    agreement = mixed(agreement, static_cast<std::uint64_t>(count));
  }
  notice.agreement = agreement;
  const DataPath reach = offer.target != nullptr ? post_destination(offer) : DataPath::posted;
  notice.reach = reach == DataPath::shared ? reach : post(offer, notice);
  pass(offer);
  way_ = DataPath::posted;
  bool agreed = true;
  for (int rank = 0; rank < seat_.size; ++rank) {
    const PeerDescriptor theirs = claim_of(offer, rank);
    claims_[static_cast<std::size_t>(rank)] = theirs;
    way_ = std::max(way_, theirs.reach);
    agreed = agreed && theirs.agreement == agreement;
  }
  if (!agreed) explain(offer);
  if (offer.receive != nullptr) check_pairs(offer);
  for (int rank = 0; rank < seat_.size; ++rank) {
    if (rank == seat_.rank) continue;
    check_claim(claims_[static_cast<std::size_t>(rank)], awaited_of(offer, rank));
  }
}

// The contents of a rank's notice; each word is read once.
PeerDescriptor Group::claim_of(const CallArguments& offer, int rank) const {
  const Notice& notice = board_.notice(rank);
  PeerDescriptor claim{.reach = read_once(notice.reach), .agreement = read_once(notice.agreement)};
  if (offer.slices != nullptr) {
    const Entry& entry = table(rank)[seat_.rank];
    claim.offset = read_once(entry.offset);
    claim.count = read_once(entry.count);
  } else {
    claim.offset = claim.reach == DataPath::posted ? 0 : read_once(notice.offset);
    claim.count = awaited_of(offer, rank).count;
  }
  return claim;
}

ExpectedDescriptor Group::awaited_of(const CallArguments& offer, int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  ExpectedDescriptor awaited{.rank = seat_.name_of(rank),
                             .count = offer.result.count(),
                             .element = size_of(offer.intent.dtype),
                             .body = board_.body_bytes(),
                             .region = peers_[at] ? peers_[at]->capacity() : 0};
  if (offer.intent.operation == Operation::broadcast && rank != offer.intent.detail)
    awaited.count = 0;
  if (offer.slices != nullptr) {
    const Slices& mine = offer.receive != nullptr ? *offer.receive : *offer.slices;
    awaited.count =
        mine.ranges[offer.receive != nullptr ? at : static_cast<std::size_t>(seat_.rank)].count;
  }
  if (offer.target != nullptr) {
    awaited.count = offer.target->ranges[at].count;
    awaited.farthest = DataPath::shared;
  }
  return awaited;
}

// Writes the destination of the values; returns whether that is shared memory.
DataPath Group::post_destination(const CallArguments& offer) {
  const View& buffer = offer.target->buffer;
  const SharedMemory* const memory = shared_memory_of(buffer);
  const bool small = offer.target->total() * size_of(offer.intent.dtype) <= Board::kPosted;
  if (memory == nullptr && small) return DataPath::posted;
  Destination mine;
  if (memory != nullptr) {
    const View own = offer.target->of(seat_.rank);
    mine.offset = static_cast<const std::byte*>(buffer.data()) - memory->span->data();
    mine.memory = memory->number;
    mine.there = own.empty() || own.data() == offer.whole.data() ? 1 : 0;
  } else {
    mine.offset = memory_->region().offset_of(buffer.data(), buffer.bytes());
  }
  for (const auto& [begin, count] : offer.target->ranges) {
    mine.layout = mixed(mine.layout, static_cast<std::uint64_t>(begin));
  }
  destination(seat_.rank) = mine;
  return memory != nullptr ? DataPath::shared : DataPath::posted;
}

const Group::SharedMemory* Group::shared_memory_of(const View& view) const {
  const auto* const data = static_cast<const std::byte*>(view.data());
  const auto found = std::ranges::find_if(shared_, [&](const SharedMemory& memory) {
    return !memory.user.expired() && data >= memory.span->data() &&
           data + view.bytes() <= memory.span->data() + memory.span->bytes();
  });
  return found == shared_.end() || view.empty() ? nullptr : &*found;
}

// Fills in this rank's notice, with its values if they fit.
DataPath Group::post(const CallArguments& offer, Notice& notice) {
  const std::int64_t element = size_of(offer.intent.dtype);
  std::byte* const body = board_.body(seat_.rank);
  if (offer.slices == nullptr) {
    const std::int64_t bytes = offer.whole.bytes();
    if (bytes <= Board::kPosted) {
      if (bytes > 0) std::memcpy(body, offer.whole.data(), static_cast<std::size_t>(bytes));
      return DataPath::posted;
    }
    notice.offset = memory_->region().offset_of(offer.whole.data(), bytes);
    return notice.offset < 0 ? DataPath::staged : DataPath::direct;
  }
  const View& buffer = offer.slices->buffer;
  const std::int64_t start = memory_->region().offset_of(buffer.data(), buffer.bytes());
  const std::int64_t table_bytes = seat_.size * static_cast<std::int64_t>(sizeof(Entry));
  const bool posted = offer.slices->total() * element <= Board::kPosted;
  std::int64_t at = table_bytes;
  for (int rank = 0; rank < seat_.size; ++rank) {
    const auto [begin, count] = offer.slices->ranges[static_cast<std::size_t>(rank)];
    Entry& entry = table(seat_.rank)[rank];
    entry = {posted ? at : start + begin * element, count, 0};
    if (offer.receive != nullptr) {
      entry.expected = offer.receive->ranges[static_cast<std::size_t>(rank)].count;
    }
    if (!posted || count == 0) continue;
    const auto* const from = static_cast<const std::byte*>(buffer.data()) + begin * element;
    std::memcpy(body + at, from, static_cast<std::size_t>(count * element));
    at += count * element;
  }
  if (posted) return DataPath::posted;
  return start < 0 ? DataPath::staged : DataPath::direct;
}

void Group::pass(const CallArguments& offer) {
  if (board_.failed()) throw_failure(offer);
  board_.arrive();
  const auto came = [this] { return board_.all_came(); };
  if (came() || spin_policy_.outlasts(came, idle_)) return;
  constexpr std::chrono::milliseconds kShortestNap{1};
  constexpr std::chrono::milliseconds kBetweenChecks{1000};  // a failing rank can first report why
  std::chrono::milliseconds unchecked{0};
  LongWait wait(*context_, behind_);
  std::optional<std::chrono::steady_clock::time_point> overdue;
  for (auto nap = kShortestNap; !came(); nap = std::min(2 * nap, longest_nap_)) {
    if (board_.failed()) throw_failure(offer);
    idle_();
    board_.sleep(wait.until_due(nap));
    look(wait, offer, overdue);
    unchecked += nap;
    if (unchecked < kBetweenChecks) continue;
    check_peers(offer);
    unchecked = {};
  }
}

/// Checks the limits of a wait whose timeout came at `overdue`, if it has come.
void Group::look(LongWait& wait, const CallArguments& offer,
                 std::optional<std::chrono::steady_clock::time_point>& overdue) {
  const LongWait::Due due = wait.due();
  if (due == LongWait::Due::nothing) return;
  Waiting who = waiting(offer);
  if (who.absent.empty()) return;
  if (due == LongWait::Due::warning) return wait.warn(who);
  const auto now = std::chrono::steady_clock::now();
  if (!overdue) overdue = now;
  if (blame_) {
    auto ranks = blame_(absent(), now - *overdue);
    if (!ranks) return;
    who.absent = *std::move(ranks);
  }
  throw Error(wait.overdue(who));
}

std::string Group::staging_offset() const {
  return std::to_string(memory_->region().offset_of(staging_, 2 * half_));
}

// Copies elements [begin, begin + count) of each slice to one half of the staging area.
void Group::stage(const CallArguments& offer, std::int64_t begin, std::int64_t count) {
  part_begin_ = begin;
  part_count_ = count;
  part_half_ = 1 - part_half_;
  if (claims_[static_cast<std::size_t>(seat_.rank)].reach != DataPath::staged) return;
  const std::int64_t element = size_of(offer.intent.dtype);
  std::byte* to = staging_ + part_half_ * half_;
  const int views = offer.slices != nullptr ? seat_.size : 1;
  for (int i = 0; i < views; ++i, to += count * element) {
    const View view = offer.slices != nullptr ? offer.slices->of(i) : offer.whole;
    const std::int64_t there = std::clamp<std::int64_t>(view.count() - begin, 0, count);
    if (there == 0 || i == (offer.slices != nullptr ? seat_.rank : -1)) continue;
    std::memcpy(to, view.slice(begin, there).data(), static_cast<std::size_t>(there * element));
  }
}

std::byte* Group::staging_of(int rank, int half, std::int64_t offset, std::int64_t bytes) {
  if (rank == seat_.rank) return staging_ + half * half_ + offset;
  const auto at = static_cast<std::size_t>(rank);
  return memory_->reach(*peers_[at], stagings_[at] + half * half_ + offset, bytes);
}

View Group::part(const CallArguments& offer, int peer, std::int64_t begin, std::int64_t count) {
  const DType dtype = offer.intent.dtype;
  if (peer == seat_.rank) {
    return (offer.slices != nullptr ? offer.slices->of(peer) : offer.whole).slice(begin, count);
  }
  const std::int64_t element = size_of(dtype);
  const std::int64_t bytes = count * element;
  const PeerDescriptor& claim = claims_[static_cast<std::size_t>(peer)];
  check_range("values of a peer", begin, count, claim.count);
  std::byte* data = nullptr;
  if (claim.reach == DataPath::posted) {
    data = board_.body(peer) + claim.offset + begin * element;
  } else if (claim.reach == DataPath::direct) {
    data = memory_->reach(*peers_[static_cast<std::size_t>(peer)], claim.offset + begin * element,
                          bytes);
  } else {
    const std::int64_t skipped = offer.index(seat_.rank) * part_count_ + begin - part_begin_;
    data = staging_of(peer, part_half_, skipped * element, bytes);
  }
  return {data, count, dtype, nullptr};
}

}  // namespace zero::host
