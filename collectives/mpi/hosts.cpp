// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/hosts.h"

#include <algorithm>

#include "base/checked_math.h"
#include "collectives/mpi/failures.h"

namespace zero::mpi {
namespace {

std::vector<int> leaders_of(const HostPlan& plan) {
  std::vector<int> leaders;
  for (const WorkAssignment& host : plan.hosts()) leaders.push_back(host.members().front());
  return leaders;
}

Slices::Range at(const Slices& slices, int rank) {
  return slices.ranges[static_cast<std::size_t>(rank)];
}

}  // namespace

Hosts::Hosts(Link& link, HostPlan plan, Groups groups)
    : link_(link),
      plan_(std::move(plan)),
      groups_(std::move(groups)),
      host_(plan_.host_of(link.rank())),
      subtree_(plan_.subtree_of(link.rank())) {
  link_.compare_among(leaders_of(plan_));
}

void Hosts::set_step(std::int64_t step) {
  link_.set_step(step);
  groups_.host->set_step(step);
  if (groups_.subtree) groups_.subtree->set_step(step);
}

void Hosts::set_behind(int waits) {
  groups_.host->set_behind(waits);
  if (groups_.subtree) groups_.subtree->set_behind(waits);
}

// compare() finds an absent rank of this host, messages one of another host; other waits on this
// host are for ranks that themselves wait for an absent one. So may be the wait in compare(), for a
// rank that is still in the call before: that one is not to blame.
void Hosts::call(const CallSignature& signature, const Work& work) {
  constexpr int kBehindMessages = 1;
  link_.guarded(signature, [&] {
    try {
      set_behind(0);
      groups_.host->compare(signature);
      set_behind(kBehindMessages);
      link_.compared(signature, work);
    } catch (const std::exception& error) {
      const std::string_view origin = origin_of(error.what());
      groups_.host->give_up(origin);
      if (groups_.subtree) groups_.subtree->give_up(origin);
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
    groups_.host->all_gather(given, assigned, signature.purpose);
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
  groups_.host->broadcast(values, here.index(first), signature.purpose);
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
    groups_.host->broadcast(values, here.index(root), signature.purpose);
  }
  link_.wait(*messages);
  if (host_ != home) gather(signature, own, shares, home);
}

void Hosts::barrier(std::string_view purpose) {
  const CallSignature signature{.operation = Operation::barrier, .purpose = purpose};
  call(signature, [&] { link_.barrier(); });
}

}  // namespace zero::mpi
