// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/checked_math.h"
#include "collectives/fold.h"
#include "collectives/mpi/hosts.h"

namespace zero::mpi {
namespace {

constexpr std::int64_t kAligned = 64;  // bytes

}  // namespace

void Hosts::Sums::clear(std::size_t subtrees, std::int64_t bytes) {
  of_subtrees.assign(subtrees, View());
  if (static_cast<std::int64_t>(memory.size()) < bytes) {
    memory.resize(static_cast<std::size_t>(bytes));
  }
  used = 0;
}

View Hosts::Sums::take(std::int64_t count, DType dtype) {
  const View place(memory.data() + used, count, dtype, nullptr);
  used += round_up(place.bytes(), kAligned);
  return place;
}

// Most bytes that a rank holds of a part: a sum that it forms in each round, and one for itself
// from each sub-tree.
std::int64_t Hosts::sums_of_part() const {
  int rounds = 0;
  for (const WorkAssignment& work : plan_.summing()) {
    if (work.size() > 1) rounds = std::max(rounds, work.rounds());
  }
  return rounds + static_cast<std::int64_t>(plan_.subtrees().size());
}

void Hosts::reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View /*workspace*/,
                           std::string_view purpose) {
  const CallSignature signature = CallSignature::of(Operation::reduce_scatter, full, purpose);
  const std::int64_t sums = sums_of_part();
  const std::int64_t fitting = kPart / (sums * size_of(DType::fp32)) / kNormBlock * kNormBlock;
  const std::int64_t most = std::max(kNormBlock, fitting);
  const auto sums_of = [&](std::int64_t part) -> Sums& {
    return sums_[static_cast<std::size_t>(part % 2)];
  };
  const auto start = [&](std::int64_t part, Transfers& transfers) {
    sums_of(part).clear(plan_.subtrees().size(), sums * most * size_of(DType::fp32));
    start_sums(signature, full.part(part * most, most), sums_of(part), transfers);
  };
  const auto end = [&](std::int64_t part) {
    const std::int64_t count = full.part(part * most, most).of(link_.rank()).count();
    if (count == 0) return;
    fold(plan_, sums_of(part).of_subtrees, epilogue.slice(part * most, count));
  };
  call(signature, [&] { in_parts(div_ceil(full.largest(), most), start, end); });
}

// Sums of this rank's sub-tree are sent as soon as they are formed.
void Hosts::start_sums(const CallSignature& signature, const Slices& part, Sums& sums,
                       Transfers& transfers) {
  const int rank = link_.rank();
  const View own = part.of(rank);
  receive_sums(own, DType::fp32, sums, transfers);
  View& mine = sums.of_subtrees[static_cast<std::size_t>(subtree_)];
  const WorkAssignment& work = subtree();
  if (work.size() == 1) {
    mine = own;
    for (int step = 1; step < plan_.ranks(); ++step) {
      const int to = (rank + step) % plan_.ranks();
      transfers.send(part.of(to), to);
    }
    return;
  }
  for (int round = 0; round < work.rounds(); ++round) {
    const Slices slices = assigned_slices(part, work, round);
    const int index = work.index(rank);
    const int to = work.assigned(round, index);
    const View sum = sums.take(slices.of(index).count(), DType::fp32);
    if (slices.total() > 0)
      subtree_group().reduce_scatter(slices, {{}, sum, nullptr}, {}, signature.purpose);
    if (to == rank) mine = sum;
    if (to >= 0 && to != rank) transfers.send(sum, to);
  }
}

// The sums of the other sub-trees for `own`, in `dtype`; values of single ranks in own's dtype.
void Hosts::receive_sums(View own, DType dtype, Sums& sums, Transfers& transfers) {
  for (std::size_t i = 0; i < sums.of_subtrees.size(); ++i) {
    if (static_cast<int>(i) == subtree_) continue;
    const WorkAssignment& work = plan_.summing()[i];
    sums.of_subtrees[i] = sums.take(own.count(), work.size() == 1 ? own.dtype() : dtype);
    transfers.receive(sums.of_subtrees[i], work.owner(link_.rank()));
  }
}

void Hosts::all_reduce(View values, ReduceOp op, std::string_view purpose) {
  const Slices::Range all{0, values.count()};
  const CallSignature signature =
      CallSignature::of(Operation::all_reduce, values, all, static_cast<int>(op), purpose);
  const bool whole = values.bytes() <= Link::kWhole;
  const auto subtrees = static_cast<std::int64_t>(plan_.subtrees().size());
  const std::int64_t most =
      whole ? Link::kWhole : kPart / (subtrees * size_of(values.dtype())) * plan_.ranks();
  call(signature, [&] {
    for (std::int64_t begin = 0; begin < values.count(); begin += most) {
      const View block = values.slice(begin, std::min(most, values.count() - begin));
      if (subtree().size() > 1) subtree_group().all_reduce(block, op, purpose);
      if (whole) {
        combine_between(signature, [&](int) { return block; });
      } else {
        all_reduce_shares(signature, block);
      }
    }
  });
}

// Every rank combines its share of the values, then all shares are gathered in place.
void Hosts::all_reduce_shares(const CallSignature& signature, View values) {
  const auto share_of = [&](int rank) { return share(values, rank, plan_.ranks()); };
  combine_between(signature, share_of);
  Slices shares{.buffer = values, .ranges = {}};
  std::int64_t begin = 0;
  for (int rank = 0; rank < plan_.ranks(); ++rank) {
    shares.ranges.push_back({begin, share_of(rank).count()});
    begin += shares.ranges.back().count;
  }
  gather(signature, share_of(link_.rank()), shares, -1);
}

// part_of(rank): the part of this rank's sub-tree's result that `rank` needs. This rank's own part
// becomes the result over all ranks.
void Hosts::combine_between(const CallSignature& signature,
                            const std::function<View(int)>& part_of) {
  const int rank = link_.rank();
  const View own = part_of(rank);
  const std::size_t subtrees = plan_.subtrees().size();
  Sums& sums = sums_[0];
  sums.clear(subtrees, static_cast<std::int64_t>(subtrees) * round_up(own.bytes(), kAligned));
  const auto messages = link_.transfers();
  receive_sums(own, own.dtype(), sums, *messages);
  for (int to = 0; to < plan_.ranks(); ++to) {
    const bool needs = plan_.subtree_of(to) != subtree_ && subtree().owner(to) == rank;
    if (needs) messages->send(part_of(to), to);
  }
  link_.wait(*messages);
  sums.of_subtrees[static_cast<std::size_t>(subtree_)] = own;
  fold(plan_, static_cast<ReduceOp>(signature.detail), sums.of_subtrees, own);
}

}  // namespace zero::mpi
