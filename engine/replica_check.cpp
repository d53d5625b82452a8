// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/replica_check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <sstream>

#include "base/checked_math.h"
#include "base/consecutive.h"
#include "base/host.h"
#include "base/sign_of_life.h"
#include "collectives/host_values.h"
#include "device/cpu/primitives.h"
#include "engine/step_report.h"
#include "engine/value_hash.h"

namespace zero {
namespace {

/// The rank of the world at `index` of `axis` and at this rank's indices of the other axes.
int rank_at(const Mesh& mesh, Axis axis, int index) {
  const auto place = [&](Axis of) { return of == axis ? index : mesh.index(of); };
  return (place(Axis::replicate) * mesh.size(Axis::shard) + place(Axis::shard)) *
             mesh.size(Axis::tensor) +
         place(Axis::tensor);
}

/// `mine` of every rank of `along`, one row after the other. In host memory outside the plan, like
/// the agreement at seal().
std::vector<std::int64_t> gather_rows(Communicator& along, Device& device,
                                      std::span<const std::int64_t> mine) {
  std::vector<std::int64_t> rows(mine.size() * static_cast<std::size_t>(along.size()));
  const Slices slices = Slices::even(View::of(std::span(rows)), along.size());
  std::ranges::copy(mine, slices.of(along.rank()).as<std::int64_t>().begin());
  host_all_gather(along, device, slices, {"hashes of copies", {}});
  return rows;
}

/// Calls visit(first element, values) for the elements within `range` along the sliced dimension.
void for_range(const TensorSlice& slice, const SharedRange& range, std::int64_t begin,
               const View& values, const std::function<void(std::int64_t, const View&)>& visit) {
  const std::int64_t inner = std::accumulate(slice.shape.begin() + slice.dimension + 1,
                                             slice.shape.end(), std::int64_t{1}, std::multiplies());
  const std::int64_t row = slice.shape[static_cast<std::size_t>(slice.dimension)] * inner;
  const FlatRange all{begin, values.count()};
  for (std::int64_t at = begin / row * row; at < all.end(); at += row) {
    const FlatRange part =
        all.within({at + range.begin * inner, (range.end - range.begin) * inner});
    if (part.count > 0) visit(part.begin, values.slice(part.begin - begin, part.count));
  }
}

/// Begins with the two ranks, for with_hosts().
std::string differs(std::string_view kind, const std::string& name, std::int64_t step, int rank,
                    int from) {
  return fmt::format(
      "{3} {4} check_replicas: after step {2} the {0} of \"{1}\" on rank {3} differ from those on "
      "rank {4}, which must have the same bits",
      kind, name, step, rank, from);
}

/// The message of a text of differs(); `hosts`: the host of each rank.
std::string with_hosts(const std::string& text, const std::vector<std::string>& hosts) {
  std::istringstream fields(text);
  int rank = 0;
  int from = 0;
  std::string found;
  fields >> rank >> from >> std::ws;
  std::getline(fields, found);
  const auto host_of = [&](int of) { return hosts.at(static_cast<std::size_t>(of)); };
  return fmt::format(
      "{}; one of the two computed or kept wrong ones: start again from saved weights, and test "
      "the host of rank {}, {}, and that of rank {}, {}",
      found, rank, host_of(rank), from, host_of(from));
}

}  // namespace

const std::array<ReplicaCheck::Kind, 4> ReplicaCheck::kKinds = {
    {{"master values", StateKind::parameter},
     {"first moments", StateKind::moment0},
     {"second moments", StateKind::moment1},
     {"compute copies", std::nullopt}}};

ReplicaCheck::ReplicaCheck(const ModelState& state, DType compute)
    : state_(state), context_(state.context()), compute_(compute) {}

/// The values of one kind in this rank's shard of a segment; an fp32 compute copy is the master
/// itself.
View ReplicaCheck::shard_values(const Segment& segment, const Kind& kind) const {
  if (!kind.state) return segment.trainable && compute_ == DType::fp32 ? View() : segment.shard;
  return segment.trainable ? state_.shard_values(segment, *kind.state) : View();
}

/// The values of a parameter that every rank of the shard axis holds whole.
View ReplicaCheck::whole_values(const Copied& copied) const {
  const Segment& segment = copied.unit->segment_of(copied.index);
  const Placement& placement = copied.unit->placement(copied.index);
  if (!copied.kind->state) {
    if (!segment.full.empty()) return segment.full.slice(placement.begin, placement.count);
    const std::int64_t tail = placement.begin - segment.layout.tail_begin();
    return tail >= 0 && !segment.tail.empty() ? segment.tail.slice(tail, placement.count) : View();
  }
  const bool is_master = *copied.kind->state == StateKind::parameter;
  if (is_master && compute_ == DType::fp32) return {};
  const View& states = is_master
                           ? segment.master
                           : segment.moments[*copied.kind->state == StateKind::moment0 ? 0 : 1];
  if (states.empty() || states.count() < segment.layout.padded()) return {};
  return states.slice(placement.begin, placement.count);
}

/// The values of a view of a copy, in host memory.
void ReplicaCheck::read(const Copied& copied, const View& values, const Visit& visit) const {
  if (!copied.kind->state || values.empty()) return context_.access.read(values, visit);
  state_.read_values(copied.unit->segment_of(copied.index), *copied.kind->state, values, visit);
}

/// The copies that ranks of an axis may hold: the same list on all of them.
std::vector<ReplicaCheck::Copied> ReplicaCheck::copies(Axis axis) const {
  const SharedRange everywhere{0, 0, consecutive(0, context_.mesh.axis(axis).size())};
  std::vector<Copied> copies;
  for (const Unit& unit : context_.units) {
    for (int i = 0; i < unit.parameters(); ++i) {
      std::vector<SharedRange> ranges{everywhere};
      if (axis == Axis::tensor && unit.spec(i).slice)
        ranges = unit.shared_ranges[static_cast<std::size_t>(i)];
      for (const SharedRange& range : ranges) {
        for (const Kind& kind : kKinds) copies.push_back({&unit, i, &kind, range});
      }
    }
  }
  return copies;
}

/// The first copy whose holders sent different hashes.
std::optional<ReplicaCheck::Difference> ReplicaCheck::find(
    Communicator& along, std::span<const Copied> copies,
    std::span<const std::int64_t> hashes) const {
  const std::vector<std::int64_t> rows = gather_rows(along, context_.device, hashes);
  for (std::size_t item = 0; item < copies.size(); ++item) {
    const auto hash = [&](int rank) {
      return rows[static_cast<std::size_t>(rank) * copies.size() + item];
    };
    const std::vector<int>& holders = copies[item].range.holders;
    for (const int rank : holders) {
      if (hash(rank) != hash(holders.front())) return {{&copies[item], holders.front(), rank}};
    }
  }
  return std::nullopt;
}

/// Compares along one axis the values that `values` gives; a text if some differ.
std::string ReplicaCheck::compare_along(Axis axis, std::int64_t step,
                                        const std::function<View(const Copied&)>& values) const {
  Communicator& along = context_.mesh.axis(axis);
  if (along.size() == 1) return {};
  const std::vector<Copied> all = copies(axis);
  std::vector<std::int64_t> hashes;
  for (const Copied& copied : all) {
    std::uint64_t hash = 0;
    read(copied, values(copied),
         [&](std::int64_t /*begin*/, const View& piece) { hash = hash_values(piece, hash); });
    hashes.push_back(static_cast<std::int64_t>(hash));
  }
  const std::optional<Difference> found = find(along, all, hashes);
  if (!found) return {};
  const Mesh& mesh = context_.mesh.mesh();
  return differs(found->copied->kind->name, found->copied->unit->full_name(found->copied->index),
                 step, rank_at(mesh, axis, found->other), rank_at(mesh, axis, found->first));
}

/// Calls visit(first logical element, values) for the elements of a copy in this rank's shard.
void ReplicaCheck::visit(const Copied& copied, const Visit& visit) const {
  const auto& slice = copied.unit->spec(copied.index).slice;
  const View shard = shard_values(copied.unit->segment_of(copied.index), *copied.kind);
  state_.visit_within(*copied.unit, copied.index, shard,
                      [&](const TensorSlice::Run& run, const View& values) {
                        if (!slice) return visit(run.logical, values);
                        for_range(*slice, copied.range, run.logical, values, visit);
                      });
}

/// Shards at other tensor indices end elsewhere, so these hashes are sums over any split. Ranges of
/// a slice begin anywhere, so their blocks are single elements.
std::uint64_t ReplicaCheck::tensor_hash(const Copied& copied) const {
  const std::int64_t block = copied.unit->spec(copied.index).slice ? 1 : kAlignment;
  std::uint64_t sum = 0;
  visit(copied, [&](std::int64_t first, const View& values) {
    read(copied, values, [&](std::int64_t at, const View& piece) {
      sum += hash_blocks(0, first + at, piece, block);
    });
  });
  return sum;
}

std::string ReplicaCheck::compare_tensor_copies(std::int64_t step) const {
  Communicator& tensor = context_.mesh.axis(Axis::tensor);
  if (tensor.size() == 1) return {};
  const std::vector<Copied> all = copies(Axis::tensor);
  std::vector<std::int64_t> hashes;
  for (const Copied& copied : all) hashes.push_back(static_cast<std::int64_t>(tensor_hash(copied)));
  host_all_reduce(context_.mesh.axis(Axis::shard), context_.device, View::of(std::span(hashes)),
                  ReduceOp::sum, {"hashes of copies", {}});
  const std::optional<Difference> found = find(tensor, all, hashes);
  return found ? locate(*found, step) : std::string();
}

/// The ranks that hold the first element of a copy that differs. Collective over the replica, all
/// of whose ranks have seen the difference; a rank of the other tensor index that holds a wrong
/// element returns a text.
std::string ReplicaCheck::locate(const Difference& difference, std::int64_t step) const {
  const Copied& copied = *difference.copied;
  const std::int64_t count = copied.unit->spec(copied.index).logical_count();
  const Segment& segment = copied.unit->segment_of(copied.index);
  const DType dtype =
      copied.kind->state ? state_.value_dtype(segment, *copied.kind->state) : segment.shard.dtype();
  const std::int64_t words = div_ceil(count * size_of(dtype), size_of(DType::i32));
  const Buffer memory = context_.device.allocate_host(
      words + count, DType::i32, MemoryClass::staging, "values and holders of a copy that differs");
  const View both = memory.view();
  const View values =
      both.slice(0, words).reinterpret(dtype, words * size_of(DType::i32) / size_of(dtype));
  const View holders = both.slice(words, count);
  std::memset(both.data(), 0, static_cast<std::size_t>(both.bytes()));
  const int index = context_.mesh.mesh().index(Axis::tensor);
  const int rank = context_.mesh.world().rank();
  visit(copied, [&](std::int64_t begin, const View& own) {
    if (index != difference.first) return;
    read(copied, own, [&](std::int64_t at, const View& piece) {
      cpu::convert(piece, values.slice(begin + at, piece.count()), 1);
    });
    std::ranges::fill(holders.slice(begin, own.count()).as<std::int32_t>(), rank + 1);
  });
  host_all_reduce(context_.mesh.replica_group(), context_.device, both, ReduceOp::sum,
                  {"a copy", {}});
  std::string text;
  constexpr std::int64_t kComparedBetweenSigns = 1 << 20;  // elements: some milliseconds
  const auto compare = [&](std::int64_t begin, const View& own) {
    for (std::int64_t i = 0; i < own.count() && text.empty(); ++i) {
      if (i % kComparedBetweenSigns == 0) give_sign_of_life();
      if (std::memcmp(own.slice(i, 1).data(), values.slice(begin + i, 1).data(),
                      static_cast<std::size_t>(size_of(dtype))) == 0)
        continue;
      text = differs(copied.kind->name, copied.unit->full_name(copied.index), step, rank,
                     holders.as<const std::int32_t>()[static_cast<std::size_t>(begin + i)] - 1);
    }
  };
  visit(copied, [&](std::int64_t begin, const View& own) {
    if (index != difference.other) return;
    read(copied, own, [&](std::int64_t at, const View& piece) { compare(begin + at, piece); });
  });
  return text;
}

void ReplicaCheck::run(std::int64_t step) const {
  std::array<std::string, 3> found;
  found[0] = compare_along(Axis::replicate, step, [&](const Copied& copied) {
    const View shard = shard_values(copied.unit->segment_of(copied.index), *copied.kind);
    return state_.owned(*copied.unit, copied.index, shard);
  });
  found[1] =
      compare_along(Axis::shard, step, [&](const Copied& copied) { return whole_values(copied); });
  found[2] = compare_tensor_copies(step);
  const auto first = std::ranges::find_if(found, [](const auto& text) { return !text.empty(); });
  const std::string_view mine = first == found.end() ? std::string_view() : *first;
  Communicator& world = context_.mesh.world();
  for (const std::string& text : all_gather_texts(world, context_.device, mine, "check_replicas")) {
    if (text.empty()) continue;
    throw ReplicasDiffer(
        with_hosts(text, all_gather_texts(world, context_.device, host_name(), "hosts of copies")));
  }
}

}  // namespace zero
