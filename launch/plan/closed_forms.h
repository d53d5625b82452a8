// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "engine/counted_mesh.h"
#include "engine/schedule.h"
#include "engine/whole_units.h"
#include "launch/config/train_config.h"
#include "launch/plan/candidate.h"
#include "launch/train/plan.h"
#include "partition/flat_layout.h"

namespace zero {

/// What one rank computes and sends in an optimizer step.
struct StepWork {
  double flop = 0;                   ///< of a rank, with what is repeated
  double repeated = 0;               ///< of these, by recompute
  std::array<double, kAxes> sent{};  ///< bytes along each axis
  double copied = 0;                 ///< bytes that pass between a GPU and its host, both ways
  double filed = 0;                  ///< bytes that its file is read and written
  double along(Axis axis) const { return sent[static_cast<std::size_t>(axis)]; }
};

/// The bytes of a rank by formulas, for ranking thousands of candidates; what is shown of them is
/// planned by the engine itself (exact_plan()), and a test holds the two within 1 % of each other.
/// Where tensor ranks have unlike shares, each class is the larger of theirs: one with fewer heads
/// may keep whole what others shard.
///
/// With P = padded elements of all units, N shard ranks, e and 4 the bytes of an element in compute
/// and in fp32, a = floor(log2(accumulation)):
///
///   class          stage 0       1           2           3            by Sharding::
///   parameters     e P           e P         e P         e P/N + e W  place_parameters
///   gradients      e P + 4a P/N  as 0        (e+4a) P/N  as 2         place_gradients, _partials
///   optimizer      (4 + 2m) P    .. / N      .. / N      .. / N       place_states
///   gathered       windows that make_schedule() places                (Gathers)
///   communication  receive slices, sums of replicas, NCCL's scratch
///   staging        token ids; buffers of files  (StateWindows, ShardFetches, StateHome)
///
/// m: bytes of a moment (4, 2, 1 + 4/256). In fp32 parameters are their own masters: 2m alone, and
/// one partial sum fewer. With states in files the class optimizer is of a rank's file, in whole
/// blocks of each unit's, or of host memory, but for the scales of 8-bit moments; with parameters
/// below the device's memory so is e P/N of the units that TierOptions::parameters_in_memory
/// leaves. W: parameters that stage 3 keeps whole beside their shards (at most
/// stage3_param_persistence_threshold elements); units that choose_whole_units() keeps take e P.
/// What the model takes (activations, scratch, a tensor group's workspace) is asked of a Decoder on
/// a planning device, once for all candidates that are equal in it.
class ClosedForms {
 public:
  /// `base`: any candidate's configuration, for what all have in common: model, sequence, limits,
  /// device, threads.
  ClosedForms(const TrainConfig& base, Machine machine);

  MemoryUse memory(const Candidate& candidate);
  StepWork work(const Candidate& candidate);
  /// Of the model, without what is repeated.
  double flop_per_token() const { return flop_per_token_; }

 private:
  /// The layout of equal units: the embedding, a block, what follows the last block.
  struct UnitKind {
    FlatLayout layout;
    std::int64_t count;  ///< of units
    bool sums_uses;      ///< several uses write its gradient, which is then summed in fp32
  };
  using Kinds = std::vector<UnitKind>;
  /// Bytes of both arenas of windows, and what a micro-batch gathers.
  struct Windows {
    std::int64_t parameters = 0;
    std::int64_t gradients = 0;
    std::int64_t gathered_elements = 0;
    /// Of stage 3: units of each kind that are never gathered.
    std::array<std::int64_t, 3> whole{};
    std::array<std::int64_t, 3> away{};  ///< those whose shards are below the device's memory
    std::int64_t fetched_elements = 0;   ///< of them, that a micro-batch's gathers take
  };
  /// What the model takes beside the engine's states, sends and asks of the engine.
  struct OfModel {
    MemoryUse memory{};
    double sent = 0;    ///< bytes of the tensor rank in a micro-batch
    double copied = 0;  ///< of kept inputs, to the host and back
    std::vector<Use> order{};
  };
  class Account;

  const std::vector<int>& ranks(const Candidate& candidate);
  const OfModel& of_model(const Candidate& candidate);
  const Kinds& kinds(const Candidate& candidate);
  ScheduleInputs schedule_inputs(const Candidate& candidate);
  void keep_whole_units(const Candidate& candidate, ScheduleInputs& inputs, Windows& windows);
  void put_away(const Candidate& candidate, Windows& windows);
  void count_gathers(const Candidate& candidate, const ScheduleInput& input,
                     const Schedule& training, Windows& windows);
  const Windows& windows(const Candidate& candidate);
  double updated_bytes(const Candidate& candidate, Tier tier);
  double fetched_bytes(const Candidate& candidate, Tier tier);
  UnitSize size_of_unit(const Candidate& candidate, const UnitKind& kind) const;
  void add_states(const Candidate& candidate, Account& account);
  void add_windows(const Candidate& candidate, Account& account);
  void add_communication(const Candidate& candidate, Account& account);
  void add_host(const Candidate& candidate, Account& account) const;
  void add_groups(const MeshShape& mesh, Account& account) const;

  const TrainConfig base_;
  const Machine machine_;
  const BackendKind backend_;
  const PieceSizes pieces_;
  const MemoryUse common_;
  const double flop_per_token_;  // names all parameters: not again for each candidate
  // What many candidates share, by what decides it.
  std::map<int, std::vector<int>> ranks_;  // of unlike shares, by the number of tensor ranks
  std::map<std::tuple<int, int, int, std::int64_t>, Kinds> kinds_;
  std::map<std::tuple<int, int, int, int, DType, bool, std::int64_t, std::int64_t, bool>, Windows>
      windows_;
  std::map<std::tuple<int, int, std::int64_t, DType, RecomputeChoice::Kind, std::int64_t,
                      KeptInputPlace>,
           OfModel>
      of_model_;
  int rank_ = 0;  // the tensor rank that is asked about
};

}  // namespace zero
