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
#include "tiers/tier_file.h"

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

/// Where model states are between uses: in the device's memory, in pinned host memory (GPUs), or in
/// a rank's file on NVMe.
struct Offload {
  Tier optimizer = Tier::device;
  Tier parameters = Tier::device;  ///< shards, of stage 3

  bool uses(Tier tier) const { return optimizer == tier || parameters == tier; }
  /// Of "none", "cpu" (optimizer states, in host memory), "nvme" (the same, in a file), and
  /// "cpu-all" and "nvme-all" (these and parameters).
  static Offload from(std::string_view name);
  friend bool operator==(const Offload&, const Offload&) = default;
};
/// The names that Offload::from() takes.
inline const std::vector<std::string> kOffloads{"none", "cpu", "cpu-all", "nvme", "nvme-all"};
/// Of those names the one from which `offload` comes.
std::string name_of(const Offload& offload);

/// Where inputs of blocks that are computed again whole are between forward and backward.
enum class KeptInputPlace : std::uint8_t {
  device,
  host,  ///< in pinned memory of a GPU's host, but for those in windows
};
/// "device", "host".
std::string name_of(KeptInputPlace place);
/// Of the names above.
KeptInputPlace kept_input_place_from(std::string_view name);

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
  KeptInputPlace kept_inputs = KeptInputPlace::device;

  /// What backward computes again, of a model of so many layers, and where it keeps inputs.
  RecomputePlan recompute_plan(std::int64_t layers) const;
  /// Of an optimizer step.
  std::int64_t sequences() const { return micro * accumulation * mesh.data_ranks(); }
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
  std::vector<KeptInputPlace> kept_inputs{KeptInputPlace::device};
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
/// has one mesh for a tensor degree, a batch is whole micro-batches, GPUs alone have host memory
/// beside the device's, parameters are moved at stage 3 only, of one shard rank too, and inputs of
/// blocks where more are kept than there are windows for them. May be empty.
std::vector<Candidate> possible_candidates(const TrainingQuestion& question);
/// The same; throws zero::Error naming the axes if there are none, or the flag and limit above.
std::vector<Candidate> candidates(const TrainingQuestion& question);

}  // namespace zero
