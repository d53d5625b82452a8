// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/state_tensors.h"

#include <string>

#include "collectives/host_values.h"

namespace zero {

StateTensors::StateTensors(const EngineStates& states, std::span<const StateKind> kinds) {
  for (const StateKind kind : kinds) {
    first_.at(static_cast<std::size_t>(kind)) = all_.size();
    const std::vector<LogicalTensor> tensors = states.tensors(kind);
    all_.insert(all_.end(), tensors.begin(), tensors.end());
  }
}

std::vector<std::size_t> StateTensors::numbers(const CheckpointLayout& layout) const {
  std::vector<std::size_t> numbers;
  for (const LayoutTensor& tensor : layout.tensors())
    numbers.push_back(first_.at(static_cast<std::size_t>(tensor.kind)) + tensor.source);
  return numbers;
}

OwnedRuns StateTensors::owners(Engine& engine) const {
  std::vector<std::vector<StridedRun>> mine;
  for (const LogicalTensor& tensor : all_)
    mine.push_back(strided_runs(engine.states().runs(tensor)));
  Communicator replica(
      engine.mesh().replica_group().implementation());  // counts no traffic of a step
  const std::vector<std::string> texts =
      all_gather_texts(replica, engine.device(), OwnedRuns::encode(mine), "owners of states");
  return {texts, all_.size()};
}

}  // namespace zero
