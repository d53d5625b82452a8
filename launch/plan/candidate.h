// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "architecture/decoder_shape.h"
#include "base/dtype.h"
#include "collectives/mesh_shape.h"
#include "launch/plan/machine.h"
#include "model/recompute.h"
#include "optim/optimizer_config.h"
#include "tiers/tier.h"

namespace zero {

/// What backward computes again, in the words of "activation_checkpointing".
struct RecomputeChoice {
  enum class Kind : std::uint8_t {
    none,
    selective,  ///< attended and hidden of every block
    interval,   ///< every count-th block keeps its input alone; 1: all
    groups,     ///< number_checkpoints `count`
  };
  Kind kind = Kind::none;
  std::int64_t count = 1;

  RecomputePlan plan(std::int64_t layers) const;
  /// "none", "selective", "full", "interval 4", "groups 6".
  std::string text() const;
  /// The choice of a text; throws zero::Error with `place`, found and expected. "groups" is the
  /// whole number nearest the root of `layers`.
  static RecomputeChoice from(std::string_view text, std::int64_t layers, std::string_view place);
  friend bool operator==(const RecomputeChoice&, const RecomputeChoice&) = default;
};

/// Where model states are between uses: in the device's memory, in a rank's file on NVMe (CPUs), or
/// in pinned host memory (GPUs, optimizer states alone).
struct Offload {
  Tier optimizer = Tier::device;
  Tier parameters = Tier::device;  ///< shards, of stage 3

  bool in_files() const { return optimizer == Tier::file || parameters == Tier::file; }
  bool in_host_memory() const { return optimizer == Tier::host; }
  /// Of "none", "cpu" (optimizer states, of a GPU), "nvme" (the same, of a CPU) or "nvme-all"
  /// (these and parameters).
  static Offload from(std::string_view name);
  friend bool operator==(const Offload&, const Offload&) = default;
};
/// The names that Offload::from() takes.
inline const std::vector<std::string> kOffloads{"none", "cpu", "nvme", "nvme-all"};

/// One way to train a model on a machine: a row of the table.
struct Candidate {
  int stage = 0;
  std::int64_t micro = 1;  ///< sequences of a data rank's micro-batch
  std::int64_t accumulation = 1;
  RecomputeChoice recompute{};
  MeshShape mesh{};  ///< resolved; several tensor ranks cut the residual stream too
  MomentFormat moments = MomentFormat::fp32;
  DType compute = DType::bf16;
  Offload offload{};

  int data_ranks() const { return mesh.replicate * mesh.shard; }
  /// Of an optimizer step.
  std::int64_t sequences() const { return micro * accumulation * data_ranks(); }
  bool sequence_parallel() const { return mesh.tensor > 1; }
  /// Sums in fp32 that accumulation keeps of each gradient; a finished one in fp32 is the last.
  int partial_sums() const;
};

/// The values that a candidate's fields may have; the first of a list is preferred where two rows
/// cost the same.
struct CandidateAxes {
  std::vector<int> stages{0, 1, 2, 3};
  std::vector<std::int64_t> micros{32, 16, 8, 4, 2, 1};
  std::vector<std::int64_t> accumulations{1};  ///< unused with `batch`
  std::optional<std::int64_t> batch{};         ///< sequences of a step: gives accumulation
  std::vector<RecomputeChoice> recomputes{};   ///< empty: usual_recomputes()
  std::vector<MomentFormat> moments{MomentFormat::fp32, MomentFormat::bf16,
                                    MomentFormat::eight_bit};
  std::vector<DType> computes{DType::bf16, DType::fp32};
  std::vector<Offload> offloads{Offload{}};
  std::vector<int>
      tensors{};  ///< ranks of the tensor axis; empty: all that the model and a host have
  std::vector<int> shards{};  ///< ranks of the shard axis; empty: all that divide the rest
};

/// What is planned within seconds, and counted in 64 bits.
inline constexpr std::int64_t kMostMicro = 1 << 16;
inline constexpr std::int64_t kMostAccumulation = 1 << 16;
inline constexpr std::int64_t kMostMicroTokens = std::int64_t{1} << 27;
inline constexpr std::int64_t kMostCandidates = 500'000;

/// none, selective, full, every second and fourth block, and groups of the root of `layers`.
std::vector<RecomputeChoice> usual_recomputes(std::int64_t layers);

/// What is to be trained, where.
struct TrainingQuestion {
  DecoderShape model{};
  std::string model_text{};  ///< as it was given
  std::int64_t sequence = 0;
  Machine machine{};
  CandidateAxes axes{};
  std::vector<std::string>
      data{};  ///< token files of written configurations; empty: a name to replace
};

/// All combinations that the engine accepts: a mesh multiplies to the world, the tensor axis stays
/// within a host and has a share of every layer and row on each rank, stage 0 shards nothing and so
/// has one mesh for a tensor degree, a batch is whole micro-batches, states of CPUs alone are in
/// files, those of GPUs alone in host memory beside the device's, and parameters only at stage 3,
/// of one shard rank too. May be empty.
std::vector<Candidate> possible_candidates(const TrainingQuestion& question);
/// The same; throws zero::Error naming the axes if there are none, or the flag and limit above.
std::vector<Candidate> candidates(const TrainingQuestion& question);

}  // namespace zero
