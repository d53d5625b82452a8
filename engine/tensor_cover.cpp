// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor_cover.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "base/error.h"
#include "collectives/store.h"

namespace zero {
namespace {

bool holds(const std::vector<TensorSlice::Range>& ranges, std::int64_t index) {
  return std::ranges::any_of(ranges, [&](const TensorSlice::Range& range) {
    return range.begin <= index && index < range.begin + range.count;
  });
}

bool holds_first(const std::vector<TensorSlice::Range>& ranges, std::int64_t index) {
  return std::ranges::any_of(ranges, [&](const TensorSlice::Range& range) {
    return range.copy == 0 && range.begin <= index && index < range.begin + range.count;
  });
}

/// Where some rank's range begins or ends: between two of them nothing changes.
std::vector<std::int64_t> edges_of(const std::vector<std::vector<TensorSlice::Range>>& ranges) {
  std::set<std::int64_t> edges;
  for (const auto& of_rank : ranges) {
    for (const TensorSlice::Range& range : of_rank) {
      edges.insert(range.begin);
      edges.insert(range.begin + range.count);
    }
  }
  return {edges.begin(), edges.end()};
}

}  // namespace

void TensorCover::check(const std::string& name, const TensorSlice& slice) const {
  const std::int64_t length = slice.shape[static_cast<std::size_t>(slice.dimension)];
  std::vector<std::int64_t> places = edges_of(ranges);
  places.push_back(0);
  for (const std::int64_t index : places) {
    if (index >= length) continue;
    const auto first = std::ranges::count_if(
        ranges, [&](const auto& of_rank) { return holds_first(of_rank, index); });
    ZERO_CHECK(first == 1,
               "seal: index {} along dimension {} of parameter \"{}\" [{}] is copy 0 on {} ranks "
               "of the tensor axis, expected 1; slice it so that each index has one first holder",
               index, slice.dimension, name, fmt::join(slice.shape, ", "), first);
  }
}

std::vector<SharedRange> TensorCover::shared() const {
  std::vector<SharedRange> result;
  const std::vector<std::int64_t> edges = edges_of(ranges);
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
    std::vector<int> holders;
    for (std::size_t rank = 0; rank < ranges.size(); ++rank) {
      if (holds(ranges[rank], edges[i])) holders.push_back(static_cast<int>(rank));
    }
    if (holders.size() > 1) result.push_back({edges[i], edges[i + 1], std::move(holders)});
  }
  return result;
}

std::vector<TensorCover> exchange_covers(Communicator& tensor, Device& device,
                                         std::span<const Unit> units) {
  std::ostringstream mine;  // per range: parameter, begin, count, copy
  std::size_t parameters = 0;
  for (const Unit& unit : units) {
    for (const ParameterSpec& spec : unit.specs) {
      for (const TensorSlice::Range& range :
           spec.slice ? spec.slice->ranges : std::vector<TensorSlice::Range>()) {
        mine << parameters << ' ' << range.begin << ' ' << range.count << ' ' << range.copy << '\n';
      }
      ++parameters;
    }
  }
  const std::vector<std::string> all = exchange(tensor, device, mine.str(), "slices");
  TensorCover none;
  none.ranges.resize(all.size());
  std::vector<TensorCover> covers(parameters, none);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::istringstream text(all[rank]);
    std::size_t parameter = 0;
    TensorSlice::Range range;
    while (text >> parameter >> range.begin >> range.count >> range.copy) {
      if (range.count > 0) covers.at(parameter).ranges[rank].push_back(range);
    }
  }
  return covers;
}

}  // namespace zero
