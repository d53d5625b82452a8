// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "checkpoint/checkpoint_layout.h"
#include "checkpoint/owned_runs.h"
#include "engine/engine.h"

namespace zero {

/// The logical tensors of an engine that files hold, of some kinds of states, in one list.
class StateTensors {
 public:
  /// All that a checkpoint holds.
  static constexpr std::array kCheckpoint = {StateKind::parameter, StateKind::moment0,
                                             StateKind::moment1};
  explicit StateTensors(const Engine& engine, std::span<const StateKind> kinds = kCheckpoint);

  std::span<const LogicalTensor> all() const { return all_; }
  const LogicalTensor& operator[](std::size_t number) const { return all_[number]; }
  /// For each of layout.tensors(), the number of the logical tensor that holds its elements.
  std::vector<std::size_t> numbers(const CheckpointLayout& layout) const;
  /// The owners of all elements in this rank's replica. Collective over the replica.
  OwnedRuns owners(Engine& engine) const;

 private:
  std::vector<LogicalTensor> all_;
  std::array<std::size_t, kCheckpoint.size()> first_{};  // the first number of each kind
};

}  // namespace zero
