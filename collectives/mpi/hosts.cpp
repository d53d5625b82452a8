// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/hosts.h"

#include <algorithm>

#include "base/checked_math.h"

namespace zero::mpi {
namespace {

constexpr std::int64_t kAligned = 64;  // bytes

std::vector<int> leaders_of(const HostPlan& plan) {
  std::vector<int> leaders;
  for (const WorkAssignment& host : plan.hosts()) leaders.push_back(host.members().front());
  return leaders;
}

Slices::Range at(const Slices& slices, int rank) {
  return slices.ranges[static_cast<std::size_t>(rank)];
}

}  // namespace

Hosts::Hosts(Link& link, HostPlan plan, Transports transports)
    : link_(link),
      plan_(std::move(plan)),
      transports_(std::move(transports)),
      host_(plan_.host_of(link.rank())),
      subtree_(plan_.subtree_of(link.rank())) {
  link_.compare_among(leaders_of(plan_));
}

void Hosts::set_step(std::int64_t step) {
  link_.set_step(step);
  transports_.host->set_step(step);
  if (transports_.subtree) transports_.subtree->set_step(step);
}

void Hosts::set_behind(int waits) {
  transports_.host->set_behind(waits);
  if (transports_.subtree) transports_.subtree->set_behind(waits);
}

// compare() finds an absent rank of this host, messages one of another host; other waits on this
// host are for ranks that themselves wait for an absent one. So may be the wait in compare(), for a
// rank that is still in the call before: that one is not to blame.
void Hosts::call(const CallSignature& signature, const Work& work) {
  constexpr int kBehindMessages = 1;
  link_.guarded(signature, [&] {
    try {
      set_behind(0);
      transports_.host->compare(signature);
      set_behind(kBehindMessages);
      link_.compared(signature, work);
    } catch (const std::exception& error) {
      const std::string_view origin = origin_of(error.what());
      transports_.host->give_up(origin);
      if (transports_.subtree) transports_.subtree->give_up(origin);
      throw;
    }
  });
}

void Hosts::in_parts(std::int64_t parts, const Start& start, const End& end) {
  std::array<std::unique_ptr<Transfers>, 2> under_way;
  for (std::int64_t part = 0; part <= parts; ++part) {
    if (part < parts) {
      auto& next = under_way[static_cast<std::size_t>(part % 2)];
      next = link_.transfers();
      start(part, *next);
    }
    if (part > 0) {
      link_.wait(*under_way[static_cast<std::size_t>((part - 1) % 2)]);
      end(part - 1);
    }
  }
}

void Hosts::all_gather(View mine, const Slices& full, std::string_view purpose) {
  const CallSignature signature = CallSignature::of(Operation::all_gather, full, purpose);
  call(signature, [&] { gather(signature, mine, full, -1); });
}

// Slices of host `without` are empty, and it takes no part.
void Hosts::gather(const CallSignature& signature, View mine, const Slices& full, int without) {
  const int rank = link_.rank();
  const WorkAssignment& here = plan_.hosts()[static_cast<std::size_t>(host_)];
  const std::int64_t most = kPart / size_of(full.buffer.dtype());
  const auto start = [&](std::int64_t part, Transfers& transfers) {
    const Slices slices = full.part(part * most, most);
    for (int round = 1; round < here.rounds(); ++round) {
      const int from = here.assigned(round, here.index(rank));
      if (from >= 0) transfers.receive(slices.of(from), from);
    }
    for (int host = 0; host < static_cast<int>(plan_.hosts().size()); ++host) {
      if (host == host_ || host == without) continue;
      const auto [begin, count] = at(slices, rank);
      const View own = mine.slice(begin - at(full, rank).begin, count);
      transfers.send(own, plan_.hosts()[static_cast<std::size_t>(host)].owner(rank));
    }
    if (part == 0) share_round(signature, 0, mine, full);
  };
  in_parts(div_ceil(full.largest(), most), start, [&](std::int64_t part) {
    const Slices slices = full.part(part * most, most);
    for (int round = 1; round < here.rounds(); ++round) {
      const int mine_now = here.assigned(round, here.index(rank));
      share_round(signature, round, mine_now < 0 ? mine.slice(0, 0) : slices.of(mine_now), slices);
    }
  });
}

// Each rank of this host gives its peers the slice that it handles in this round: `given`.
void Hosts::share_round(const CallSignature& signature, int round, View given,
                        const Slices& slices) {
  const WorkAssignment& here = plan_.hosts()[static_cast<std::size_t>(host_)];
  const Slices assigned = assigned_slices(slices, here, round);
  const bool all_there = round > 0 && here.size() == 1;
  if (assigned.total() > 0 && !all_there)
    transports_.host->all_gather(given, assigned, signature.purpose);
}

// Each pair of ranks exchanges the values that only these two need.
void Hosts::all_to_all(const Slices& send, const Slices& receive, std::string_view purpose) {
  const CallSignature signature{
      .operation = Operation::all_to_all, .purpose = purpose, .dtype = send.buffer.dtype()};
  call(signature, [&] { link_.all_to_all(send, receive); });
}

void Hosts::broadcast(View values, int root, std::string_view purpose) {
  const Slices::Range all{0, values.count()};
  const CallSignature signature =
      CallSignature::of(Operation::broadcast, values, all, root, purpose);
  call(signature, [&] {
    if (values.bytes() <= Link::kWhole) return broadcast_whole(signature, values);
    broadcast_shares(signature, values);
  });
}

// Sends to one rank of each other host, which shares the values with its peers.
void Hosts::broadcast_whole(const CallSignature& signature, View values) {
  const int root = signature.detail;
  const WorkAssignment& here = plan_.hosts()[static_cast<std::size_t>(host_)];
  const int first = host_ == plan_.host_of(root) ? root : here.owner(root);
  const auto messages = link_.transfers();
  if (link_.rank() == root) {
    for (const WorkAssignment& host : plan_.hosts()) {
      if (host.owner(root) != root) messages->send(values, host.owner(root));
    }
  } else if (link_.rank() == first) {
    messages->receive(values, root);
  }
  link_.wait(*messages);
  transports_.host->broadcast(values, here.index(first), signature.purpose);
}

// Sends a share to each rank of the other hosts, which gather the shares, so the root's link
// carries the values once.
void Hosts::broadcast_shares(const CallSignature& signature, View values) {
  const int root = signature.detail;
  const int home = plan_.host_of(root);
  const int elsewhere = plan_.ranks() - plan_.hosts()[static_cast<std::size_t>(home)].size();
  Slices shares{.buffer = values, .ranges = {}};
  int cut = 0;
  for (int rank = 0; rank < plan_.ranks(); ++rank) {
    const std::int64_t begin = values.count() * cut / elsewhere;
    if (plan_.host_of(rank) != home) ++cut;
    shares.ranges.push_back({begin, values.count() * cut / elsewhere - begin});
  }
  const View own = shares.of(link_.rank());
  const auto messages = link_.transfers();
  if (link_.rank() == root) {
    for (int rank = 0; rank < plan_.ranks(); ++rank) messages->send(shares.of(rank), rank);
  } else {
    messages->receive(own, root);
  }
  if (host_ == home) {
    const WorkAssignment& here = plan_.hosts()[static_cast<std::size_t>(home)];
    transports_.host->broadcast(values, here.index(root), signature.purpose);
  }
  link_.wait(*messages);
  if (host_ != home) gather(signature, own, shares, home);
}

void Hosts::barrier(std::string_view purpose) {
  const CallSignature signature{.operation = Operation::barrier, .purpose = purpose};
  call(signature, [&] { link_.barrier(); });
}

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
      subtree_transport().reduce_scatter(slices, {{}, sum, nullptr}, {}, signature.purpose);
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
      if (subtree().size() > 1) subtree_transport().all_reduce(block, op, purpose);
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
