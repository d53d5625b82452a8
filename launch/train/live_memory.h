// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "device/device.h"

namespace zero {

class Mesh;
struct TrainConfig;

/// The parts of a rank's memory that are live in an optimizer step: that hold values which later
/// work reads. Always at most what is allocated. Data of one step; equal for every step.
struct LiveMemory {
  /// Named memory of one class.
  struct Tensor {
    MemoryClass memory_class = MemoryClass::other;
    std::string owner;  ///< a unit, "block 3", or empty: the whole rank's
    std::string what;   ///< "master", "qkv", "logits": see docs/live_memory.md
    std::int64_t bytes = 0;
    friend bool operator==(const Tensor&, const Tensor&) = default;
  };
  struct Moment {
    std::string name;  ///< "before", ..., or the work that runs at the peak
    BytesByClass bytes{};
    std::int64_t sum() const { return sum_of(bytes); }
  };
  /// Which tensors text() lists: the largest few, or all.
  enum class Labels : std::uint8_t { largest, all };
  /// The arena of activations, without scratch.
  struct Arena {
    std::int64_t bytes = 0;
    std::int64_t least = 0;     ///< the most bytes alive at once: no placement takes less
    std::vector<Tensor> alive;  ///< then, largest first; `what`: "hidden of blocks 1 to 10"
  };

  int rank = 0;
  BytesByClass allocated{};  ///< of the same rank: the peak of its ledger, without saves
  /// "before" the step; behind "forward", "loss" and "backward" of the last micro-batch, when no
  /// work runs; behind the "step".
  std::vector<Moment> phases;
  Moment peak;                   ///< the largest sum; scratch and receive slices included
  std::int64_t micro_batch = 1;  ///< of the peak, from 1 on
  std::vector<Tensor> tensors;   ///< alive at the peak, largest first
  Arena arena;

  nlohmann::json json() const;
  std::string text(Labels labels) const;
};

/// Runs one optimizer step, without saves, of `config` on `device`, a planning device, as this rank
/// of `mesh`, with the run's own code: operations, copies, collectives and leases tell what they
/// use (ActivationTrace, Engine::live_tensors).
LiveMemory live_memory(const TrainConfig& config, Mesh& mesh, Device& device);

}  // namespace zero
