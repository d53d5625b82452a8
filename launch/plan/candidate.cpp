// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/candidate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "architecture/decoder_parameters.h"
#include "base/error.h"
#include "base/message_text.h"
#include "engine/sharding.h"
#include "launch/plan/model_choice.h"
#include "model/kept_inputs.h"

namespace zero {
namespace {

std::int64_t root_of(std::int64_t layers) {
  return std::max<std::int64_t>(1, std::lround(std::sqrt(static_cast<double>(layers))));
}

/// "none", "selective", "interval=4", "groups=6".
std::string words(const RecomputeChoice& choice, char between) {
  constexpr std::array kNames{"none", "selective", "interval", "groups"};
  const std::string name = kNames.at(static_cast<std::size_t>(choice.kind));
  return choice.kind < RecomputeChoice::Kind::interval
             ? name
             : fmt::format("{}{}{}", name, between, choice.count);
}

/// Whether ranks that hold the same heads would have the same blocks of 8-bit moments.
bool keeps_blocks(const DecoderShape& model, int ranks) {
  for (int rank = 0; model.kv_heads < ranks && rank < ranks; ++rank) {
    const DecoderParameters held(DecoderSplit::of(model, rank, ranks, DecoderSplit::Tables::cut));
    for (const DecoderParameter& each : held.all) {
      const ParameterSpec spec = each.spec();
      if (spec.slice && !spec.slice->copies_in_blocks(moment_block(MomentFormat::eight_bit))) {
        return false;
      }
    }
  }
  return true;
}

std::vector<MeshShape> meshes(const TrainingQuestion& question) {
  const Machine& machine = question.machine;
  const auto allowed = [](const std::vector<int>& given, int value) {
    return given.empty() || std::ranges::find(given, value) != given.end();
  };
  std::vector<MeshShape> all;
  for (int tensor = 1; tensor <= machine.devices; ++tensor) {
    if (machine.devices % tensor != 0 || !allowed(question.axes.tensors, tensor)) continue;
    if (!can_cut(question.model, tensor)) continue;
    const int rest = machine.world() / tensor;
    for (int shard = 1; shard <= rest; ++shard) {
      if (rest % shard != 0 || !allowed(question.axes.shards, shard)) continue;
      all.push_back({.replicate = rest / shard, .shard = shard, .tensor = tensor});
    }
  }
  return all;
}

/// Whether a stage goes with the mesh and the tiers: shards of one rank are no shards, but below
/// the device's memory they take none of it. Stage 0 has its ranks along the shard axis, as a run
/// without a mesh has.
bool stage_fits(const Candidate& candidate) {
  const MeshShape& mesh = candidate.mesh;
  if (candidate.offload.parameters != Tier::device) return candidate.stage == 3;
  return candidate.stage == 0 ? mesh.replicate == 1 : mesh.shard > 1;
}

/// Whether kept inputs can be where the candidate has them: on a GPU, and more than its windows
/// hold.
bool inputs_fit(const Candidate& candidate, const TrainingQuestion& question) {
  if (candidate.kept_inputs == KeptInputPlace::device) return true;
  const std::int64_t layers = question.model.layers;
  return question.machine.kind == DeviceKind::cuda &&
         InputWindows(candidate.recompute_plan(layers), layers).on_host() > 0;
}

/// Each of `all` with each of the values.
template <typename Value>
void extend(std::vector<Candidate>& all, const std::vector<Value>& values,
            Value Candidate::*member) {
  ZERO_CHECK(std::ssize(all) * std::ssize(values) <= kMostCandidates,
             "more than {} candidates; give fewer values, of --stage, --micro, --accumulation, "
             "--recompute, --kept-inputs, --moments, --dtype, --offload, --tensor or --shard",
             kMostCandidates);
  std::vector<Candidate> longer;
  longer.reserve(all.size() * values.size());
  for (const Candidate& each : all) {
    for (const Value& value : values) longer.emplace_back(each).*member = value;
  }
  all = std::move(longer);
}

/// Each of `all` with the accumulations that make the batch, if one is given, or with all.
std::vector<Candidate> with_accumulations(const CandidateAxes& axes, std::vector<Candidate> all) {
  if (!axes.batch) {
    extend(all, axes.accumulations, &Candidate::accumulation);
    return all;
  }
  const auto at_once = [](const Candidate& each) { return each.micro * each.mesh.data_ranks(); };
  std::erase_if(all, [&](const Candidate& each) { return *axes.batch % at_once(each) != 0; });
  for (Candidate& each : all) each.accumulation = *axes.batch / at_once(each);
  std::erase_if(all, [](const Candidate& each) { return each.accumulation > kMostAccumulation; });
  return all;
}

/// Says which axis leaves no candidate: the first that leaves some if it is open.
[[noreturn]] void refuse(const TrainingQuestion& question) {
  const CandidateAxes& axes = question.axes;
  const Machine& machine = question.machine;
  TrainingQuestion open = question;
  open.axes.batch.reset();
  ZERO_CHECK(possible_candidates(open).empty(),
             "no candidate: --batch {} is no multiple of any micro-batch ({}) times the data ranks "
             "of a mesh of {} devices, with accumulation of {} at most; change one of them",
             axes.batch.value_or(0), fmt::join(axes.micros, ", "), machine.world(),
             kMostAccumulation);
  const bool cpu = machine.kind == DeviceKind::cpu;
  open.axes.kept_inputs = {KeptInputPlace::device};
  ZERO_CHECK(
      possible_candidates(open).empty(),
      "no candidate: inputs of blocks are kept in host memory {}; give --kept-inputs device{}",
      cpu ? "of a CPU anyway"
          : fmt::format("where more than {} blocks are computed again from theirs alone",
                        InputWindows::kMost),
      cpu ? "" : ", or --recompute full");
  open.axes.offloads = {Offload{}};
  if (!possible_candidates(open).empty()) {
    const auto in_host = [](const Offload& each) { return each.uses(Tier::host); };
    const bool only_host = std::ranges::all_of(axes.offloads, in_host);
    ZERO_CHECK(
        !cpu || !only_host,
        "no candidate: states of a CPU are in host memory anyway; give --offload none, or nvme");
    fail(
        "no candidate: parameters are in {} at stage 3 only; give --stage 3, or --offload {} in "
        "place of {}-all",
        only_host ? "host memory" : "files", only_host ? "cpu" : "nvme",
        only_host ? "cpu" : "nvme");
  }
  open.axes.moments = {MomentFormat::fp32};
  ZERO_CHECK(possible_candidates(open).empty(),
             "no candidate: with 8-bit moments tensor ranks that hold the same key/value heads "
             "would have other blocks of them; give --moments fp32 or bf16, or at most {} --tensor "
             "ranks",
             question.model.kv_heads);
  open.axes.micros = {machine.devices};
  ZERO_CHECK(possible_candidates(open).empty(),
             "no candidate: {} x {} tokens (--micro x --sequence) are fewer than the tensor ranks, "
             "which share them; change one of them, or --tensor",
             std::ranges::max(axes.micros), question.sequence);
  open.axes.shards.clear();
  ZERO_CHECK(possible_candidates(open).empty(),
             "no candidate: no mesh of {} x {} (hosts x devices) has {} ranks along its shard axis "
             "at stage {}; change --shard or --stage",
             machine.hosts, machine.devices, fmt::join(axes.shards, ", "),
             fmt::join(axes.stages, ", "));
  ZERO_CHECK(meshes(open).empty(),
             "no candidate: stage {} shards over several ranks, and no mesh of {} x {} (hosts x "
             "devices) has them; give --stage 0, or another --tensor",
             fmt::join(axes.stages, ", "), machine.hosts, machine.devices);
  fail(
      "--tensor: no mesh of {} x {} devices has {} tensor ranks; give divisors of the {} devices "
      "of a host that leave the model's {} heads and {} intermediate columns a share each",
      machine.hosts, machine.devices, fmt::join(axes.tensors, ", "), machine.devices,
      question.model.heads, question.model.intermediate);
}

}  // namespace

RecomputePlan RecomputeChoice::plan(std::int64_t layers) const {
  switch (kind) {
    case Kind::none:
      break;
    case Kind::selective:
      return RecomputePlan::selective(layers, {BlockTensor::attended, BlockTensor::hidden});
    case Kind::interval:
      return RecomputePlan::full(layers, count);
    case Kind::groups:
      return RecomputePlan::grouped(layers, count);
  }
  return {};
}

std::string RecomputeChoice::text() const {
  return kind == Kind::interval && count == 1 ? "full" : words(*this, ' ');
}

RecomputeChoice RecomputeChoice::from(std::string_view text, std::int64_t layers,
                                      std::string_view place) {
  if (text == "full") return {Kind::interval, 1};
  if (text == "groups") return {Kind::groups, root_of(layers)};
  for (const Kind kind : {Kind::none, Kind::selective, Kind::interval, Kind::groups}) {
    for (std::int64_t count = 1; count <= layers; ++count) {
      if (text == words({kind, count}, '=')) return {kind, count};
    }
  }
  fail(
      "{}: found \"{}\", expected none, selective, full, groups, or interval=N or groups=N with N "
      "from 1 to the model's {} layers",
      place, printable_line(text), layers);
}

Offload Offload::from(std::string_view name) {
  if (name == "none") return {};
  const Tier tier = name.starts_with("cpu") ? Tier::host : Tier::file;
  return {.optimizer = tier, .parameters = name.ends_with("-all") ? tier : Tier::device};
}

std::string name_of(const Offload& offload) {
  return *std::ranges::find(kOffloads, offload,
                            [](const std::string& name) { return Offload::from(name); });
}

std::string name_of(KeptInputPlace place) {
  return place == KeptInputPlace::host ? "host" : "device";
}

KeptInputPlace kept_input_place_from(std::string_view name) {
  return name == "host" ? KeptInputPlace::host : KeptInputPlace::device;
}

RecomputePlan Candidate::recompute_plan(std::int64_t layers) const {
  RecomputePlan plan = recompute.plan(layers);
  plan.inputs_on_host = kept_inputs == KeptInputPlace::host;
  return plan;
}

int Candidate::partial_sums() const {
  const int held = held_partials(static_cast<int>(accumulation));
  return compute == DType::fp32 && held > 0 ? held - 1 : held;
}

std::vector<RecomputeChoice> usual_recomputes(std::int64_t layers) {
  using enum RecomputeChoice::Kind;
  std::vector<RecomputeChoice> all{{none, 1}, {selective, 1}, {interval, 1}};
  for (const std::int64_t every : {2, 4}) {
    if (every < layers) all.push_back({interval, every});
  }
  if (const std::int64_t groups = root_of(layers); groups > 1 && groups < layers) {
    all.push_back({RecomputeChoice::Kind::groups, groups});
  }
  return all;
}

std::vector<Candidate> possible_candidates(const TrainingQuestion& question) {
  const CandidateAxes& axes = question.axes;
  const std::vector<RecomputeChoice> recomputes =
      axes.recomputes.empty() ? usual_recomputes(question.model.layers) : axes.recomputes;
  std::vector<Candidate> all{Candidate{}};
  extend(all, axes.computes, &Candidate::compute);
  extend(all, axes.moments, &Candidate::moments);
  extend(all, axes.offloads, &Candidate::offload);
  const bool cpu = question.machine.kind == DeviceKind::cpu;
  std::erase_if(all, [&](const Candidate& each) { return cpu && each.offload.uses(Tier::host); });
  extend(all, meshes(question), &Candidate::mesh);
  std::map<int, bool> kept;  // by tensor ranks
  std::erase_if(all, [&](const Candidate& each) {
    if (each.moments != MomentFormat::eight_bit) return false;
    const auto [found, made] = kept.try_emplace(each.mesh.tensor);
    if (made) found->second = keeps_blocks(question.model, each.mesh.tensor);
    return !found->second;
  });
  extend(all, axes.stages, &Candidate::stage);
  std::erase_if(all, [](const Candidate& each) { return !stage_fits(each); });
  extend(all, recomputes, &Candidate::recompute);
  extend(all, axes.kept_inputs, &Candidate::kept_inputs);
  std::erase_if(all, [&](const Candidate& each) { return !inputs_fit(each, question); });
  extend(all, axes.micros, &Candidate::micro);
  std::erase_if(all, [&](const Candidate& each) {  // a row of the residual stream for each rank
    return each.micro * question.sequence < each.mesh.tensor;
  });
  return with_accumulations(axes, std::move(all));
}

std::vector<Candidate> candidates(const TrainingQuestion& question) {
  const std::int64_t micro = std::ranges::max(question.axes.micros);
  ZERO_CHECK(micro <= kMostMicro && micro * question.sequence <= kMostMicroTokens,
             "--micro is {}, with --sequence {}: expected at most {}, and {} tokens of both", micro,
             question.sequence, kMostMicro, kMostMicroTokens);
  ZERO_CHECK(std::ranges::max(question.axes.accumulations) <= kMostAccumulation,
             "--accumulation is {}, expected at most {}",
             std::ranges::max(question.axes.accumulations), kMostAccumulation);
  std::vector<Candidate> all = possible_candidates(question);
  if (all.empty()) refuse(question);
  return all;
}

}  // namespace zero
