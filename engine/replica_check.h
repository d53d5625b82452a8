// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/model_state.h"

namespace zero {

/// Compares by hashes the values that several ranks hold and that must have the same bits: see
/// EngineStates::check_replicas().
class ReplicaCheck {
 public:
  /// `state` must outlive this; `compute` is the dtype of compute copies.
  ReplicaCheck(const ModelState& state, DType compute);

  /// Throws the same ReplicasDiffer on all ranks if some values differ after step `step`.
  /// Collective; both streams must be done with the states.
  void run(std::int64_t step) const;

 private:
  /// Values of which a rank holds a copy. Compute copies are no model state: their kind is empty.
  struct Kind {
    std::string_view name;
    std::optional<StateKind> state;
  };
  static const std::array<Kind, 4> kKinds;
  /// Values of a parameter that several ranks hold.
  struct Copied {
    const Unit* unit = nullptr;
    int index = 0;  ///< of the parameter in the unit
    const Kind* kind = nullptr;
    SharedRange range{};  ///< along the tensor axis: its holders; of a sliced parameter, where
  };
  /// A copy that differs: on index `other` of an axis from that on index `first`.
  struct Difference {
    const Copied* copied = nullptr;
    int first = 0;
    int other = 0;
  };
  using Visit = std::function<void(std::int64_t first, const View& values)>;

  View shard_values(const Segment& segment, const Kind& kind) const;
  View whole_values(const Copied& copied) const;
  void read(const Copied& copied, const View& values, const Visit& visit) const;
  std::vector<Copied> copies(Axis axis) const;
  void visit(const Copied& copied, const Visit& visit) const;
  std::uint64_t tensor_hash(const Copied& copied) const;
  std::optional<Difference> find(Communicator& along, std::span<const Copied> copies,
                                 std::span<const std::int64_t> hashes) const;
  std::string compare_along(Axis axis, std::int64_t step,
                            const std::function<View(const Copied&)>& values) const;
  std::string compare_tensor_copies(std::int64_t step) const;
  std::string locate(const Difference& difference, std::int64_t step) const;

  const ModelState& state_;
  const ModelState::Context& context_;
  DType compute_;
};

}  // namespace zero
