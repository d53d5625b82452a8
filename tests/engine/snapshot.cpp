// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/snapshot.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

namespace zero::plain {

std::int64_t elements_of(const LogicalTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

void Snapshot::add(Engine& engine, Stream& stream) {
  constexpr std::int64_t kPiece = 23;
  const bool first_replica = engine.mesh().mesh().index(Axis::replicate) == 0;
  stream.wait(engine.device().compute().record());  // which updated the states
  for (const StateKind kind : kKeptKinds) {
    for (const LogicalTensor& tensor : engine.states().tensors(kind)) {
      std::vector<float> own(static_cast<std::size_t>(elements_of(tensor)));
      const std::vector<StateRun> runs = engine.states().runs(tensor);
      for (const StateRun& run : runs) {
        for (std::int64_t at = run.begin; at < run.begin + run.count; at += kPiece) {
          const std::int64_t count = std::min(kPiece, run.begin + run.count - at);
          engine.states().copy(tensor, at, View::of(std::span(own)).slice(at, count), stream);
        }
      }
      stream.synchronize();
      const std::lock_guard lock(mutex_);
      std::vector<float>& values = values_[{kind, tensor.name}];
      std::vector<int>& times = times_[{kind, tensor.name}];
      values.resize(own.size());
      times.resize(own.size());
      for (const StateRun& run : runs) {
        if (!run.first || !first_replica) continue;
        for (std::int64_t i = run.begin; i < run.begin + run.count; ++i) {
          values[static_cast<std::size_t>(i)] = own[static_cast<std::size_t>(i)];
          ++times[static_cast<std::size_t>(i)];
        }
      }
    }
  }
  const std::lock_guard lock(mutex_);
  steps_ = engine.states().steps_done();
}

void Snapshot::restore(Engine& engine, std::int64_t length) const {
  for (const StateKind kind : kKeptKinds) {
    for (const LogicalTensor& tensor : engine.states().tensors(kind)) {
      std::vector<float> values = values_.at({kind, tensor.name});
      const View all = View::of(std::span(values));
      for (std::int64_t at = 0; at < all.count(); at += length)
        engine.states().set(tensor, at, all.slice(at, std::min(length, all.count() - at)));
    }
  }
  engine.states().publish_parameters();
  engine.states().restore(steps_);
}

}  // namespace zero::plain
