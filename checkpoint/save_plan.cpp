// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save_plan.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/sign_of_life.h"

namespace zero {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// Of a terabyte there are a million blocks; the work of these takes some milliseconds.
constexpr std::int64_t kBlocksBetweenSigns = 1024;
constexpr std::int64_t kRoundsBetweenSigns = 16;

}  // namespace

/// Deals the blocks of one replica into rounds.
class SavePlan::Dealer {
 public:
  Dealer(const SavePlan& plan, const Dealing& dealing)
      : plan_(plan),
        per_round_(dealing.per_round),
        exchanged_(dealing.exchanged * dealing.block_elements),
        waiting_(at(plan.owned_.ranks())),
        next_(at(plan.owned_.ranks())) {}

  void add(std::int64_t block) { waiting_[at(plan_.writer(block))].push_back(block); }

  /// Calls round(blocks, exchanges) for every round, blocks in the order of (writer, number).
  template <typename Visit>
  void deal(const Visit& visit) {
    const int ranks = plan_.owned_.ranks();
    for (int first = 0; left(); first = (first + 1) % ranks) {
      std::vector<std::vector<std::int64_t>> taken(at(ranks));
      sent_.assign(at(ranks), 0);
      // Another writer goes first in each round, so that none always finds the senders busy.
      for (int i = 0; i < ranks; ++i) take((first + i) % ranks, taken[at((first + i) % ranks)]);
      std::vector<std::int64_t> blocks;
      for (const auto& of_writer : taken)
        blocks.insert(blocks.end(), of_writer.begin(), of_writer.end());
      visit(blocks, std::ranges::any_of(sent_, [](std::int64_t sent) { return sent > 0; }));
    }
  }

 private:
  bool left() const {
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      if (next_[i] < waiting_[i].size()) return true;
    }
    return false;
  }

  void take(int writer, std::vector<std::int64_t>& taken) {
    const std::vector<std::int64_t>& waiting = waiting_[at(writer)];
    std::size_t& next = next_[at(writer)];
    std::int64_t received = 0;
    while (std::ssize(taken) < per_round_ && next < waiting.size()) {
      std::vector<Share> shares = plan_.shares(waiting[next]);
      std::erase_if(shares, [&](const Share& share) { return share.rank == writer; });
      for (const Share& share : shares) {
        received += share.count;
        if (sent_[at(share.rank)] + share.count > exchanged_) return;
      }
      if (received > exchanged_) return;
      for (const Share& share : shares) sent_[at(share.rank)] += share.count;
      taken.push_back(waiting[next++]);
    }
  }

  const SavePlan& plan_;
  std::int64_t per_round_;
  std::int64_t exchanged_;                          // elements
  std::vector<std::vector<std::int64_t>> waiting_;  // per writer
  std::vector<std::size_t> next_;
  std::vector<std::int64_t> sent_;  // in the round, per rank
};

SavePlan::SavePlan(const CheckpointLayout& layout, std::vector<std::size_t> numbers,
                   OwnedRuns owned, const Dealing& dealing)
    : layout_(layout),
      numbers_(std::move(numbers)),
      owned_(std::move(owned)),
      block_elements_(dealing.block_elements) {
  ZERO_CHECK(dealing.per_round >= 1 && dealing.exchanged >= 1,
             "blocks of a round: {}, {} exchanged; expected 1 or more", dealing.per_round,
             dealing.exchanged);
  const std::int64_t blocks = layout_.blocks().count();
  for (std::int64_t block = 0; block < blocks; ++block) {
    if (block % kBlocksBetweenSigns == 0) give_sign_of_life();
    writers_.push_back(find_writer(block));
  }
  for (int replica = 0; replica < dealing.replicas; ++replica) {
    Dealer dealer(*this, dealing);
    for (std::int64_t block = replica; block < blocks; block += dealing.replicas) dealer.add(block);
    std::int64_t rounds = 0;
    dealer.deal([&](const std::vector<std::int64_t>& taken, bool exchanges) {
      if (rounds++ % kRoundsBetweenSigns == 0) give_sign_of_life();
      if (replica != dealing.replica) return;
      order_.insert(order_.end(), taken.begin(), taken.end());
      ends_.push_back(order_.size());
      exchanges_.push_back(exchanges ? 1 : 0);
    });
    rounds_ = std::max(rounds_, rounds);
  }
}

bool SavePlan::exchanges(std::int64_t round) const {
  return round < std::ssize(exchanges_) && exchanges_[at(round)] != 0;
}

/// The elements that each rank owns of a block, of those that own any, in rank order.
std::vector<SavePlan::Share> SavePlan::shares(std::int64_t block) const {
  std::vector<Share> found;
  std::int64_t whole = 0;
  const Block bytes = layout_.blocks().at(block);
  layout_.for_each_piece(bytes, [&](const BlockPiece& piece) {
    owned_.count_in(numbers_[piece.tensor], {piece.source_begin, piece.count},
                    [&](int rank, std::int64_t count) {
                      found.push_back({rank, count});
                      whole -= count;
                    });
    whole += piece.count;
  });
  std::ranges::sort(found, {}, &Share::rank);
  std::vector<Share> shares;
  for (const Share& share : found) {
    if (shares.empty() || shares.back().rank != share.rank) shares.push_back({share.rank, 0});
    shares.back().count += share.count;
  }
  ZERO_CHECK(
      whole == 0,
      "{} from offset {}: {} elements have no owner, or some have several; expected that the "
      "ranks of a replica own each element once",
      layout_.files()[bytes.file].name, bytes.begin, whole);
  return shares;
}

int SavePlan::find_writer(std::int64_t block) const {
  Share most;  // rank 0 writes blocks without elements
  for (const Share& share : shares(block)) {
    if (share.count > most.count) most = share;
  }
  return most.rank;
}

void SavePlan::for_each_run(std::int64_t block,
                            const std::function<void(int rank, const Part& part)>& visit) const {
  layout_.for_each_piece(layout_.blocks().at(block), [&](const BlockPiece& piece) {
    const std::size_t tensor = numbers_[piece.tensor];
    const std::int64_t first = div_exact(piece.offset, sizeof(float));
    owned_.for_each_in(tensor, {piece.source_begin, piece.count},
                       [&](int rank, std::int64_t begin, std::int64_t count) {
                         visit(rank, {tensor, begin, count, first + begin - piece.source_begin});
                       });
  });
}

SavePlan::Round SavePlan::of(std::int64_t round, int rank) const {
  Round result;
  result.send.resize(at(owned_.ranks()));
  result.receive.resize(at(owned_.ranks()));
  if (round >= std::ssize(ends_)) return result;
  const std::size_t begin = round == 0 ? 0 : ends_[at(round - 1)];
  const auto blocks = std::span(order_).subspan(begin, ends_[at(round)] - begin);

  // Both sides list what one rank sends another in the order of (block, byte).
  std::int64_t packed = 0;
  std::vector<std::vector<FileOffset>> from(at(owned_.ranks()));
  for (const std::int64_t block : blocks) {
    const int to = writer(block);
    const std::int64_t base = std::ssize(result.blocks) * block_elements_;
    if (to == rank) result.blocks.push_back(block);
    Slices::Range& sent = result.send[at(to)];
    if (sent.count == 0) sent.begin = packed;
    for_each_run(block, [&](int owner, Part part) {
      if (to == rank) part.at += base;
      if (to == rank && owner == rank) result.own.push_back(part);
      if (to == rank && owner != rank) from[at(owner)].push_back({0, part.count, part.at});
      if (to == rank || owner != rank) return;
      part.at = packed;
      result.pack.push_back(part);
      packed += part.count;
      sent.count += part.count;
    });
  }
  std::int64_t received = 0;
  for (int owner = 0; owner < owned_.ranks(); ++owner) {
    result.receive[at(owner)].begin = received;
    for (FileOffset place : from[at(owner)]) {
      place.from = received;
      received += place.count;
      result.place.push_back(place);
    }
    result.receive[at(owner)].count = received - result.receive[at(owner)].begin;
  }
  return result;
}

}  // namespace zero
