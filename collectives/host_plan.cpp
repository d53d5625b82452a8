// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host_plan.h"

#include <algorithm>
#include <bit>

#include "base/consecutive.h"
#include "device/cpu/primitives.h"

namespace zero {
namespace {

// The index at which the tree over a list of `count` > 1 splits.
int split_of(int count) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(count - 1)));
}

constexpr std::int64_t kBlock = 32 * kNormBlock;  // elements at a time: they stay in a cache

std::vector<View> pick(const std::vector<View>& values, const HostPlan::Fold& fold) {
  std::vector<View> inputs;
  for (const int value : fold) inputs.push_back(values[static_cast<std::size_t>(value)]);
  return inputs;
}

bool of_one_dtype(std::span<const View> views) {
  return std::ranges::all_of(views, [&](View v) { return v.dtype() == views[0].dtype(); });
}

/// Memory for the values of one block.
class Room {
 public:
  Room(std::size_t places, DType dtype)
      : dtype_(dtype), bytes_(places * static_cast<std::size_t>(kBlock * size_of(dtype))) {}

  View place(std::size_t index, std::int64_t count) {
    return {bytes_.data() + static_cast<std::int64_t>(index) * kBlock * size_of(dtype_), count,
            dtype_, nullptr};
  }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

}  // namespace

WorkAssignment::WorkAssignment(int ranks, std::vector<int> members)
    : ranks_(ranks), members_(std::move(members)) {}

int WorkAssignment::index(int member) const {
  return static_cast<int>(std::ranges::lower_bound(members_, member) - members_.begin());
}

int WorkAssignment::owner(int rank) const {
  const auto at = std::ranges::lower_bound(members_, rank);
  if (at != members_.end() && *at == rank) return rank;
  const auto others = rank - (at - members_.begin());  // non-members before this one
  return members_[static_cast<std::size_t>(others % size())];
}

int WorkAssignment::assigned(int round, int member) const {
  if (round == 0) return members_[static_cast<std::size_t>(member)];
  int rank = (round - 1) * size() + member;
  for (const int skipped : members_) rank += rank >= skipped ? 1 : 0;
  return rank < ranks_ ? rank : -1;
}

Slices assigned_slices(const Slices& slices, const WorkAssignment& work, int round) {
  Slices result{.buffer = slices.buffer, .ranges = {}};
  for (int member = 0; member < work.size(); ++member) {
    const int rank = work.assigned(round, member);
    result.ranges.push_back(rank < 0 ? Slices::Range{}
                                     : slices.ranges[static_cast<std::size_t>(rank)]);
  }
  return result;
}

HostPlan::HostPlan(const std::vector<int>& hosts)
    : host_of_(hosts.size()), subtree_of_(hosts.size()) {
  find_hosts(hosts);
  find_subtrees({0, ranks()});
  find_folds({0, ranks()});
}

void HostPlan::find_hosts(const std::vector<int>& hosts) {
  std::vector<int> names;
  std::vector<std::vector<int>> members;
  for (int rank = 0; rank < ranks(); ++rank) {
    const int name = hosts[static_cast<std::size_t>(rank)];
    const auto host = static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
    if (host == names.size()) {
      names.push_back(name);
      members.emplace_back();
    }
    members[host].push_back(rank);
    host_of_[static_cast<std::size_t>(rank)] = static_cast<int>(host);
  }
  for (auto& ranks_there : members) hosts_.emplace_back(ranks(), std::move(ranks_there));
}

void HostPlan::find_subtrees(RankRange range) {
  const auto first = host_of_.begin() + range.begin;
  if (std::all_of(first, first + range.count(), [&](int host) { return host == *first; })) {
    std::fill_n(subtree_of_.begin() + range.begin, range.count(),
                static_cast<int>(subtrees_.size()));
    subtrees_.push_back(range);
    summing_.emplace_back(ranks(), consecutive(range.begin, range.count()));
    return;
  }
  const int middle = range.begin + split_of(range.count());
  find_subtrees({range.begin, middle});
  find_subtrees({middle, range.end});
}

// Whether the tree over these ranks, above the sub-trees, is the tree over a list of the sub-trees:
// then one fold suffices.
bool HostPlan::alike(RankRange range) const {
  const int first = subtree_of(range.begin);
  const int count = subtree_of(range.end - 1) + 1 - first;
  if (count == 1) return true;
  const int middle = range.begin + split_of(range.count());
  return subtree_of(middle) == first + split_of(count) && alike({range.begin, middle}) &&
         alike({middle, range.end});
}

int HostPlan::find_folds(RankRange range) {
  const int first = subtree_of(range.begin);
  const int last = subtree_of(range.end - 1);
  if (first == last) return first;
  Fold fold;
  if (alike(range)) {
    fold = consecutive(first, last + 1 - first);
  } else {
    const int middle = range.begin + split_of(range.count());
    const int left = find_folds({range.begin, middle});
    fold = {left, find_folds({middle, range.end})};
  }
  folds_.push_back(std::move(fold));
  return static_cast<int>(subtrees_.size() + folds_.size()) - 1;
}

void fold(const HostPlan& plan, std::span<const View> subtrees, const ReduceEpilogue& epilogue) {
  const auto& folds = plan.folds();
  if (folds.size() == 1 && of_one_dtype(subtrees)) return cpu::tree_reduce(subtrees, epilogue);
  Room room(subtrees.size() + folds.size(), DType::fp32);
  const std::int64_t all = epilogue.destination.count();
  for (std::int64_t begin = 0; begin < all; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, all - begin);
    std::vector<View> values;
    for (const View& subtree : subtrees) {
      values.push_back(subtree.slice(begin, count));
      if (subtree.dtype() == DType::fp32) continue;
      const View exact = room.place(values.size() - 1, count);
      cpu::convert(values.back(), exact);
      values.back() = exact;
    }
    for (const HostPlan::Fold& each : std::span(folds).first(folds.size() - 1)) {
      const View sum = room.place(values.size(), count);
      cpu::tree_reduce(pick(values, each), {.addends = {}, .destination = sum, .norm = nullptr});
      values.push_back(sum);
    }
    cpu::tree_reduce(pick(values, folds.back()), epilogue.slice(begin, count));
  }
}

void fold(const HostPlan& plan, ReduceOp op, std::span<const View> subtrees, View destination) {
  const auto& folds = plan.folds();
  if (folds.size() == 1) return cpu::combine(subtrees, op, destination);
  Room room(subtrees.size() + folds.size(), destination.dtype());
  for (std::int64_t begin = 0; begin < destination.count(); begin += kBlock) {
    const std::int64_t count = std::min(kBlock, destination.count() - begin);
    std::vector<View> values;
    for (const View& subtree : subtrees) values.push_back(subtree.slice(begin, count));
    for (const HostPlan::Fold& each : std::span(folds).first(folds.size() - 1)) {
      const View result = room.place(values.size(), count);
      cpu::combine(pick(values, each), op, result);
      values.push_back(result);
    }
    cpu::combine(pick(values, folds.back()), op, destination.slice(begin, count));
  }
}

}  // namespace zero
