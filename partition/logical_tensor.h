// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "device/view.h"

namespace zero {

enum class StateKind : std::uint8_t { parameter, moment0, moment1, gradient };
/// "parameter", "moment0", ...
inline std::string_view name_of(StateKind kind) {
  constexpr std::array<std::string_view, 4> kNames{"parameter", "moment0", "moment1", "gradient"};
  return kNames.at(static_cast<std::size_t>(kind));
}

/// A tensor of the training state as it is at any mesh and stage. Equal on all ranks.
struct LogicalTensor {
  std::string name;                 ///< full parameter name
  std::vector<std::int64_t> shape;  ///< of the whole tensor
  StateKind kind = StateKind::parameter;
  bool trainable = true;
  /// Of the stored values: fp32, but moments may have bf16 or 8-bit codes (u8), gradients have
  /// their own, and frozen parameters, which have no master values, the compute dtype.
  DType dtype = DType::fp32;
  int unit = -1;       ///< index of the unit in the engine
  int parameter = -1;  ///< index of the parameter in the unit
};

/// Consecutive elements of a logical tensor that this rank's shard holds in one place.
struct StateRun {
  std::int64_t begin = 0;  ///< in the logical tensor
  std::int64_t count = 0;
  /// Whether this rank is the first of its replica group (the ranks along the shard and the tensor
  /// axis) that holds these elements: over the group, first runs cover each element once.
  bool first = true;
  friend bool operator==(const StateRun&, const StateRun&) = default;
};

/// A view of elements of a logical tensor in this rank's shard.
struct StateView {
  std::int64_t begin = 0;  ///< first element, in the logical tensor
  /// Of device memory, in LogicalTensor::dtype; host code accesses them through
  /// EngineStates::host_access().
  View values;
  /// Over all ranks, each element is in exactly one primary view.
  bool primary = true;
};

/// A logical tensor and what this rank's shard holds of it, at stage 0 too, where every rank keeps
/// all elements. Replicas, and ranks of a tensor group that hold the same elements, all list them:
/// a caller that changes values must change all views alike.
struct HeldTensor : LogicalTensor {
  std::vector<StateView> views;
};

}  // namespace zero
