// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor_copies.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "base/checked_math.h"
#include "base/message_text.h"
#include "collectives/host_values.h"

namespace zero {
namespace {

using Ranges = std::vector<TensorSlice::Range>;

const TensorSlice::Range* holder_of(const Ranges& ranges, std::int64_t index) {
  const auto found = std::ranges::find_if(ranges, [&](const TensorSlice::Range& range) {
    return range.begin <= index && index < range.begin + range.count;
  });
  return found == ranges.end() ? nullptr : &*found;
}

/// The indices at which a range of some rank begins or ends; holders change only there.
std::set<std::int64_t> edges_of(const std::vector<Ranges>& ranks) {
  std::set<std::int64_t> edges;
  for (const Ranges& ranges : ranks) {
    for (const TensorSlice::Range& range : ranges)
      edges.insert({range.begin, range.begin + range.count});
  }
  return edges;
}

void check_first_holders(const std::vector<Ranges>& ranks, const std::string& name,
                         const TensorSlice& slice) {
  std::set<std::int64_t> places = edges_of(ranks);
  places.insert(0);
  places.erase(places.lower_bound(slice.shape[static_cast<std::size_t>(slice.dimension)]),
               places.end());
  for (const std::int64_t index : places) {
    const auto first = std::ranges::count_if(ranks, [&](const Ranges& ranges) {
      const TensorSlice::Range* held = holder_of(ranges, index);
      return held != nullptr && held->copy == 0;
    });
    ZERO_CHECK(first == 1,
               "seal: index {} along dimension {} of parameter \"{}\" {} is copy 0 on {} ranks "
               "of the tensor axis, expected 1; slice it so that each index has one first holder",
               index, slice.dimension, name, shape_text(slice.shape), first);
  }
}

std::vector<SharedRange> shared_by(const std::vector<Ranges>& ranks) {
  std::vector<SharedRange> result;
  const std::set<std::int64_t> edges = edges_of(ranks);
  for (auto edge = edges.begin(); edge != edges.end() && std::next(edge) != edges.end(); ++edge) {
    std::vector<int> holders;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (holder_of(ranks[rank], *edge) != nullptr) holders.push_back(static_cast<int>(rank));
    }
    if (holders.size() > 1) result.push_back({*edge, *std::next(edge), std::move(holders)});
  }
  return result;
}

/// Copies whose blocks of 8-bit moments had other elements would drift apart.
void check_blocks(const TensorSlice& held, const TensorSlice::Range& part, const std::string& name,
                  std::int64_t block) {
  ZERO_CHECK(held.in_blocks(part.begin, part.begin + part.count, block),
             "seal: indices {} to {} along dimension {} of \"{}\" {} are held by {} ranks of "
             "the tensor axis, whose blocks of {} elements of 8-bit moments would differ; keep "
             "moments in fp32 or bf16, or take so many ranks that none holds a copy",
             part.begin, part.begin + part.count - 1, held.dimension, name, shape_text(held.shape),
             part.holders, block);
}

void check_blocks(const std::vector<Ranges>& ranks, std::span<const SharedRange> shared,
                  const Unit& unit, int index, std::int64_t block) {
  const TensorSlice& own = *unit.spec(index).slice;
  for (const SharedRange& part : shared) {
    for (const int rank : part.holders) {
      check_blocks({own.shape, own.dimension, ranks[static_cast<std::size_t>(rank)]},
                   {part.begin, part.end - part.begin, 0, static_cast<int>(part.holders.size())},
                   unit.full_name(index), block);
    }
  }
}

/// One line for each range of each slice: parameter, begin, count, copy.
std::string slices_text(std::span<const Unit> units) {
  std::ostringstream text;
  std::size_t parameter = 0;
  for (const Unit& unit : units) {
    for (const ParameterSpec& spec : unit.specs) {
      for (const TensorSlice::Range& range : spec.slice ? spec.slice->ranges : Ranges())
        text << parameter << ' ' << range.begin << ' ' << range.count << ' ' << range.copy << '\n';
      ++parameter;
    }
  }
  return text.str();
}

/// Adds [begin, end) to ascending ranges, to the last one if they touch.
void append(std::vector<ElementRange>& ranges, const FlatRange& range) {
  if (range.count == 0) return;
  if (!ranges.empty() && ranges.back().begin + ranges.back().count == range.begin) {
    ranges.back().count += range.count;
  } else {
    ranges.push_back({range.begin, range.count});
  }
}

}  // namespace

void find_shared_ranges(Communicator& tensor, Device& device, std::span<Unit> units,
                        std::int64_t block) {
  const std::vector<std::string> texts =
      all_gather_texts(tensor, device, slices_text(units), "slices");
  std::map<std::size_t, std::vector<Ranges>> held;  // per sliced parameter and rank
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream text(texts[rank]);
    std::size_t parameter = 0;
    TensorSlice::Range range;
    while (text >> parameter >> range.begin >> range.count >> range.copy) {
      std::vector<Ranges>& ranks = held.try_emplace(parameter, texts.size()).first->second;
      if (range.count > 0) ranks[rank].push_back(range);
    }
  }
  std::size_t parameter = 0;
  for (Unit& unit : units) {
    for (int i = 0; i < unit.parameters(); ++i, ++parameter) {
      if (!unit.spec(i).slice) continue;
      const std::vector<Ranges>& ranks = held.try_emplace(parameter, texts.size()).first->second;
      check_first_holders(ranks, unit.full_name(i), *unit.spec(i).slice);
      std::vector<SharedRange>& shared = unit.shared_ranges[static_cast<std::size_t>(i)];
      shared = shared_by(ranks);
      if (unit.spec(i).trainable) check_blocks(ranks, shared, unit, i, block);
    }
  }
}

void check_own_copies(std::span<const Unit> units, std::int64_t block) {
  for (const Unit& unit : units) {
    for (int i = 0; i < unit.parameters(); ++i) {
      const ParameterSpec& spec = unit.spec(i);
      if (!spec.slice || !spec.trainable) continue;
      for (const TensorSlice::Range& range : spec.slice->ranges) {
        if (range.holders > 1) check_blocks(*spec.slice, range, unit.full_name(i), block);
      }
    }
  }
}

void find_uncounted(Unit& unit, int shard, int tensor) {
  Segment* segment = unit.trainable();
  if (segment == nullptr) return;
  std::vector<Placement> placements = segment->layout.placements();
  std::ranges::sort(placements, {}, &Placement::begin);
  auto ranges = std::make_shared<std::vector<ElementRange>>();
  const auto leave_out = [&](std::int64_t begin, std::int64_t count) {
    const FlatRange own = segment->layout.owned(shard, {begin, count});
    append(*ranges, {own.begin - segment->layout.shard() * shard, own.count});
  };
  for (const Placement& placement : placements) {
    const ParameterSpec& spec = unit.spec(segment->parameter(placement));
    if (!spec.slice) {  // padding behind it is zero, so neighbours merge
      if (tensor > 0) leave_out(placement.begin, round_up(placement.count, kAlignment));
      continue;
    }
    spec.for_each_run(0, placement.count, [&](const TensorSlice::Run& run) {
      if (run.copy > 0) leave_out(placement.begin + run.local, run.count);
    });
  }
  segment->excluded = ranges->empty() ? nullptr : ranges;
}

}  // namespace zero
