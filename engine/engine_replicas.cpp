// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/checked_math.h"
#include "collectives/host_values.h"
#include "collectives/store.h"
#include "engine/engine_core.h"
#include "engine/value_hash.h"

namespace zero {
namespace {

constexpr std::array<std::string_view, 4> kCopiedKinds = {"master values", "first moments",
                                                          "second moments", "compute copies"};
constexpr int kComputeCopy = 3;

/// The rank of the world that is at `index` of `axis`, and where this one is on the others.
int rank_at(const Mesh& mesh, Axis axis, int index) {
  const auto place = [&](Axis of) { return of == axis ? index : mesh.index(of); };
  return (place(Axis::replicate) * mesh.size(Axis::shard) + place(Axis::shard)) *
             mesh.size(Axis::tensor) +
         place(Axis::tensor);
}

/// `mine` of every rank of `along`, one row after the other. Of the host, as what ranks agree on at
/// seal() is: no memory of the plan.
std::vector<std::int64_t> gather_rows(Communicator& along, Device& device,
                                      std::span<const std::int64_t> mine) {
  std::vector<std::int64_t> rows(mine.size() * static_cast<std::size_t>(along.size()));
  const Slices slices = Slices::even(View::of(std::span(rows)), along.size());
  std::ranges::copy(mine, slices.of(along.rank()).as<std::int64_t>().begin());
  host_all_gather(along, device, slices, {"hashes of copies", {}});
  return rows;
}

/// Where two ranks of `holders` have other values in column `item`: the first, and one that
/// differs.
std::pair<int, int> find_difference(std::span<const std::int64_t> values, std::size_t items,
                                    std::size_t item, std::span<const int> holders) {
  for (const int rank : holders) {
    if (values[static_cast<std::size_t>(rank) * items + item] !=
        values[static_cast<std::size_t>(holders.front()) * items + item])
      return {holders.front(), rank};
  }
  return {-1, -1};
}

std::vector<int> all_of(const Communicator& along) {
  std::vector<int> ranks(static_cast<std::size_t>(along.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Calls visit(first element, values) for what lies within `range` along the sliced dimension.
void for_range(const TensorSlice& slice, const SharedRange& range, std::int64_t begin,
               const View& values, const std::function<void(std::int64_t, const View&)>& visit) {
  const std::int64_t inner = std::accumulate(slice.shape.begin() + slice.dimension + 1,
                                             slice.shape.end(), std::int64_t{1}, std::multiplies());
  const std::int64_t row = slice.shape[static_cast<std::size_t>(slice.dimension)] * inner;
  const std::int64_t end = begin + values.count();
  for (std::int64_t at = begin / row * row; at < end; at += row) {
    const std::int64_t low = std::max(begin, at + range.begin * inner);
    const std::int64_t high = std::min(end, at + range.end * inner);
    if (low < high) visit(low, values.slice(low - begin, high - low));
  }
}

}  // namespace

/// What a rank's shard of a segment has of one kind; an fp32 compute copy is the master itself.
View EngineCore::own_values(const Segment& segment, int kind) const {
  if (kind == kComputeCopy) {
    return segment.trainable && options_.compute == DType::fp32 ? View() : segment.shard;
  }
  const bool kept = segment.trainable && kind <= optimizer_->moments();
  return kept ? own_part(segment, static_cast<StateKind>(kind)) : View();
}

/// The same of a parameter whose values every rank of the shard axis has whole.
View EngineCore::whole_values(const Segment& segment, const Placement& placement, int kind) const {
  if (kind == kComputeCopy) {
    if (!segment.full.empty()) return segment.full.slice(placement.begin, placement.count);
    const std::int64_t tail = placement.begin - segment.layout.tail_begin();
    return tail >= 0 && !segment.tail.empty() ? segment.tail.slice(tail, placement.count) : View();
  }
  const bool whole = segment.trainable && kind <= optimizer_->moments() &&
                     segment.master.count() == segment.layout.padded();
  if (!whole || (kind == 0 && options_.compute == DType::fp32)) return {};
  const View& states =
      kind == 0 ? segment.master : segment.moments[static_cast<std::size_t>(kind - 1)];
  return states.slice(placement.begin, placement.count);
}

std::string EngineCore::differs(const Unit& unit, int index, int kind, int rank, int from) const {
  return fmt::format(
      "check_replicas: after step {} the {} of \"{}\" on rank {} differ from those on rank {}, "
      "which must have the same bits; one of the two computed or kept wrong ones: start again from "
      "saved weights, and test the hosts of both",
      steps_done_, kCopiedKinds[static_cast<std::size_t>(kind)],
      unit.full_names[static_cast<std::size_t>(index)], rank, from);
}

/// Compares the values that `values` names along one axis; what differs first, or nothing.
std::string EngineCore::compare_along(Axis axis, const ValuesOf& values) {
  Communicator& along = mesh_->axis(axis);
  if (along.size() == 1) return {};
  std::vector<Copied> copied;
  std::vector<std::int64_t> hashes;
  for (const Unit& unit : units_) {
    for (int i = 0; i < static_cast<int>(unit.specs.size()); ++i) {
      for (int kind = 0; kind < static_cast<int>(kCopiedKinds.size()); ++kind) {
        copied.push_back({&unit, i, kind, {}});
        hashes.push_back(static_cast<std::int64_t>(hash_values(pieces_, values(unit, i, kind))));
      }
    }
  }
  const std::vector<std::int64_t> rows = gather_rows(along, device_, hashes);
  const std::vector<int> holders = all_of(along);
  for (std::size_t item = 0; item < copied.size(); ++item) {
    const auto [first, other] = find_difference(rows, copied.size(), item, holders);
    if (first < 0) continue;
    return differs(*copied[item].unit, copied[item].index, copied[item].kind,
                   rank_at(mesh_->mesh(), axis, other), rank_at(mesh_->mesh(), axis, first));
  }
  return {};
}

/// What several ranks of the tensor axis hold: the same list on all of them.
std::vector<EngineCore::Copied> EngineCore::tensor_copies() const {
  std::vector<Copied> copies;
  std::size_t parameter = 0;
  for (const Unit& unit : units_) {
    for (int i = 0; i < static_cast<int>(unit.specs.size()); ++i, ++parameter) {
      std::vector<SharedRange> ranges = shared_ranges_[parameter];
      if (!unit.specs[static_cast<std::size_t>(i)].slice)
        ranges = {{0, 0, all_of(mesh_->axis(Axis::tensor))}};
      for (const SharedRange& range : ranges) {
        for (int kind = 0; kind < static_cast<int>(kCopiedKinds.size()); ++kind)
          copies.push_back({&unit, i, kind, range});
      }
    }
  }
  return copies;
}

/// Calls visit(first logical element, values) for what this rank's shard has of a copy.
void EngineCore::for_own_values(const Copied& copied,
                                const std::function<void(std::int64_t, const View&)>& visit) const {
  const View own = own_values(copied.unit->segment_of(copied.index), copied.kind);
  if (own.empty()) return;
  const auto& slice = copied.unit->specs[static_cast<std::size_t>(copied.index)].slice;
  for_own_runs(*copied.unit, copied.index, own,
               [&](const TensorSlice::Run& run, const View& values) {
                 if (!slice) return visit(run.logical, values);
                 for_range(*slice, copied.range, run.logical, values, visit);
               });
}

/// Shards of other tensor indices end elsewhere: hashes are sums over any split.
std::string EngineCore::compare_tensor_copies() {
  Communicator& tensor = mesh_->axis(Axis::tensor);
  if (tensor.size() == 1) return {};
  const std::vector<Copied> copies = tensor_copies();
  std::vector<std::int64_t> own(copies.size());
  for (std::size_t item = 0; item < copies.size(); ++item) {
    const ParameterSpec& spec =
        copies[item].unit->specs[static_cast<std::size_t>(copies[item].index)];
    std::uint64_t sum = 0;
    for_own_values(copies[item], [&](std::int64_t first, const View& values) {
      pieces_.read(values, [&](std::int64_t at, const View& piece) {
        sum += spec.slice ? hash_elements(first + at, piece) : hash_blocks(0, first + at, piece);
      });
    });
    own[item] = static_cast<std::int64_t>(sum);
  }
  host_all_reduce(shards_, device_, View::of(std::span(own)), ReduceOp::sum,
                  {"hashes of copies", {}});
  const std::vector<std::int64_t> rows = gather_rows(tensor, device_, own);
  for (std::size_t item = 0; item < copies.size(); ++item) {
    const auto [first, other] =
        find_difference(rows, copies.size(), item, copies[item].range.holders);
    if (first >= 0) return locate(copies[item], first, other);
  }
  return {};
}

/// The ranks that hold the first element of a copy in which tensor index `other` differs from
/// tensor index `first`. Collective over the replica, all of whose ranks have seen the difference;
/// one of tensor index `other` that holds a wrong element has a text.
std::string EngineCore::locate(const Copied& copied, int first, int other) {
  const std::int64_t count =
      copied.unit->specs[static_cast<std::size_t>(copied.index)].logical_count();
  const DType dtype = own_values(copied.unit->segment_of(copied.index), copied.kind).dtype();
  const std::int64_t words = div_ceil(count * size_of(dtype), size_of(DType::i32));
  const Buffer memory = device_.allocate_host(words + count, DType::i32, MemoryClass::staging,
                                              "values and holders of a copy that differs");
  const View both = memory.view();
  const View values =
      both.slice(0, words).reinterpret(dtype, words * size_of(DType::i32) / size_of(dtype));
  const View holders = both.slice(words, count);
  std::memset(both.data(), 0, static_cast<std::size_t>(both.bytes()));
  const int index = mesh_->mesh().index(Axis::tensor);
  for_own_values(copied, [&](std::int64_t begin, const View& own) {
    if (index != first) return;
    copy_out(own, values.slice(begin, own.count()));
    std::ranges::fill(holders.slice(begin, own.count()).as<std::int32_t>(), world_.rank() + 1);
  });
  host_all_reduce(mesh_->replica(), device_, both, ReduceOp::sum, {"a copy", {}});
  std::string text;
  const auto compare = [&](std::int64_t begin, const View& own) {
    for (std::int64_t i = 0; i < own.count() && text.empty(); ++i) {
      if (std::memcmp(own.slice(i, 1).data(), values.slice(begin + i, 1).data(),
                      static_cast<std::size_t>(size_of(dtype))) == 0)
        continue;
      text = differs(*copied.unit, copied.index, copied.kind, world_.rank(),
                     holders.as<const std::int32_t>()[static_cast<std::size_t>(begin + i)] - 1);
    }
  };
  for_own_values(copied, [&](std::int64_t begin, const View& own) {
    if (index != other) return;
    pieces_.read(own, [&](std::int64_t at, const View& piece) { compare(begin + at, piece); });
  });
  return text;
}

void EngineCore::check_replicas() {
  check_sealed("check_replicas");
  raise_failure();
  if (!device_.has_memory()) return;
  synchronize();
  const MeshTraffic pending = mesh_->traffic().since(traffic_mark_);
  std::array<std::string, 3> found;
  found[0] = compare_along(Axis::replicate, [&](const Unit& unit, int index, int kind) {
    const Segment& segment = unit.segment_of(index);
    const View own = own_values(segment, kind);
    if (own.empty()) return View();
    const Placement& placement = unit.placement(index);
    const std::int64_t shard = segment.layout.shard() * shards_.rank();
    const std::int64_t low = std::clamp(placement.begin - shard, std::int64_t{0}, own.count());
    const std::int64_t high =
        std::clamp(placement.begin + placement.count - shard, std::int64_t{0}, own.count());
    return own.slice(low, high - low);
  });
  found[1] = compare_along(Axis::shard, [&](const Unit& unit, int index, int kind) {
    return whole_values(unit.segment_of(index), unit.placement(index), kind);
  });
  found[2] = compare_tensor_copies();
  const auto first = std::ranges::find_if(found, [](const auto& text) { return !text.empty(); });
  const std::vector<std::string> all = exchange(
      world_, device_, first == found.end() ? std::string_view() : *first, "check_replicas");
  traffic_mark_ = mesh_->traffic().since(pending);  // belongs to no step
  for (const std::string& text : all) {
    if (!text.empty()) throw ReplicasDiffer(text);
  }
}

}  // namespace zero
