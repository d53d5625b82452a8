// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "checkpoint/owned_runs.h"
#include "engine/engine.h"
#include "files/file_system.h"
#include "weights/checkpoint_layout.h"

namespace zero {

/// An engine, and the disk that its states go to or come from.
struct StateSource {
  Engine& engine;
  files::FileSystem& disk;
};

/// The logical tensors of an engine that files hold, of some kinds of states, in one list.
class StateTensors {
 public:
  explicit StateTensors(const EngineStates& states, std::span<const StateKind> kinds = kStateKinds);

  std::span<const LogicalTensor> all() const { return all_; }
  const LogicalTensor& operator[](std::size_t number) const { return all_[number]; }
  /// For each of layout.tensors(), the number of the logical tensor that holds its elements.
  std::vector<std::size_t> numbers(const CheckpointLayout& layout) const;
  /// The owners of all elements in this rank's replica. Collective over the replica.
  OwnedRuns owners(Engine& engine) const;

 private:
  std::vector<LogicalTensor> all_;
  std::array<std::size_t, kStateKinds.size()> first_{};  // the first number of each kind
};

}  // namespace zero
