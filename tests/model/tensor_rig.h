// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backends.h"
#include "collectives/mesh.h"
#include "engine/engine.h"
#include "model/tensor_parallel.h"
#include "tests/ops/ops_harness.h"

namespace zero::testing {

/// What the ranks of a tensor group computed, put together as one rank would have it.
class Whole {
 public:
  /// Elements of `values` at `places` of the logical tensor `name`.
  void put(const std::string& name, const Values& values, const std::vector<std::int64_t>& places) {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = 0; i < values.size(); ++i) tensors_[name][places[i]] = values[i];
  }
  std::map<std::string, Values> take() {
    std::map<std::string, Values> all;
    for (const auto& [name, elements] : tensors_) {
      for (const auto& [place, value] : elements) all[name].push_back(value);
    }
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::map<std::int64_t, double>> tensors_;
};

/// A tensor group as a test runs it.
struct Group {
  int ranks = 1;
  TensorOptions options{};
  DType dtype = DType::fp32;
  std::function<std::unique_ptr<Device>()> open = [] { return cpu::open({.threads = 1}); };

  std::string label() const {
    return fmt::format("{} ranks, {} chunks, {}, {}{}", ranks, options.chunks, name_of(dtype),
                       options.sequence_parallel ? "own rows" : "all rows",
                       options.overlap ? "" : ", no overlap");
  }
};

/// One rank of a group: tensors, and an engine for the layers' parameters.
class Rig {
 public:
  Rig(Communicator& world, const Group& group, std::int64_t rows, Whole& whole)
      : h(group.open()),
        mesh_(world, {1, 1, group.ranks}),
        engine(mesh_, *h.device, {.stage = 0, .compute = group.dtype, .seed = 7}),
        tensor(engine.mesh().axis(Axis::tensor), *h.device, rows, group.options),
        dtype(group.dtype),
        whole_(whole) {}

  /// A unit used once forward and once backward.
  UnitId seal(std::vector<ParameterSpec> parameters) {
    specs_ = std::move(parameters);
    const UnitId unit = engine.add_unit("layer", specs_);
    engine.seal();
    h.ops->allocate_scratch();
    tensor.allocate();
    return unit;
  }

  std::vector<std::int64_t> own_rows() const {
    std::vector<std::int64_t> rows;
    for (int k = 0; k < tensor.chunks(); ++k) {
      const Slices::Range mine =
          tensor.sequence_parallel() ? tensor.cut().share(k, tensor.rank()) : tensor.cut().chunk(k);
      for (std::int64_t row = 0; row < mine.count; ++row) rows.push_back(mine.begin + row);
    }
    return rows;
  }
  static std::vector<std::int64_t> indices(const std::vector<TensorSlice::Range>& ranges) {
    std::vector<std::int64_t> all;
    for (const TensorSlice::Range& range : ranges) {
      for (std::int64_t i = 0; i < range.count; ++i) all.push_back(range.begin + i);
    }
    return all;
  }
  /// Random elements, the same for any group: those of `rows` and `columns` of rows x width.
  View operand(std::uint32_t seed, std::int64_t width, const std::vector<std::int64_t>& rows,
               const std::vector<std::int64_t>& columns) {
    const Values all = random_values(tensor.rows() * width, seed, dtype);
    Values mine;
    for (const std::int64_t row : rows) {
      for (const std::int64_t column : columns) {
        mine.push_back(all[static_cast<std::size_t>(row * width + column)]);
      }
    }
    return h.tensor(mine, dtype);
  }
  View empty(std::int64_t rows, std::int64_t width) { return h.empty(rows * width, dtype); }
  /// All rows of what `own` holds a part of: other memory where the rows differ.
  View all_of(View own, std::int64_t width) {
    return tensor.sequence_parallel() ? empty(tensor.rows(), width) : own;
  }

  void put(const std::string& name, View values, std::int64_t width,
           const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns) {
    std::vector<std::int64_t> places;
    for (const std::int64_t row : rows) {
      for (const std::int64_t column : columns) places.push_back(row * width + column);
    }
    whole_.put(name, h.read(values), places);
  }
  void put_gradients(const GradientLease& unit) {
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      const ParameterSpec& spec = specs_[i];
      std::vector<std::int64_t> places;
      const auto add = [&](std::int64_t begin, std::int64_t count) {
        for (std::int64_t at = 0; at < count; ++at) places.push_back(begin + at);
      };
      if (spec.slice) {
        spec.slice->for_each_run(0, spec.count(),
                                 [&](const TensorSlice::Run& run) { add(run.logical, run.count); });
      } else {
        add(0, spec.count());
      }
      whole_.put("gradient of " + spec.name, h.read(unit.gradient(static_cast<int>(i))), places);
    }
  }

  Harness h;

 private:
  Mesh mesh_;

 public:
  Engine engine;
  TensorParallel tensor;
  const DType dtype;

 private:
  Whole& whole_;
  std::vector<ParameterSpec> specs_;
};

inline std::vector<std::int64_t> up_to(std::int64_t count) { return Rig::indices({{0, count, 0}}); }

using Tensors = std::map<std::string, Values>;

/// body(rig) on every rank of `group`, for micro-batches of `rows`; what they put together.
inline Tensors together(const Group& group, std::int64_t rows,
                        const std::function<void(Rig&)>& body) {
  Whole whole;
  local::run(group.ranks, [&](Communicator& world) {
    Rig rig(world, group, rows, whole);
    body(rig);
  });
  return whole.take();
}

}  // namespace zero::testing
