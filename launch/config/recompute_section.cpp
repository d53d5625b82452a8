// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "launch/config/answers.h"
#include "launch/config/checked_value.h"
#include "launch/config/train_config.h"

namespace zero {
namespace {

const std::string kSection = "activation_checkpointing.";
/// Tensors that "selective" may name, and those that it computes again unless told otherwise. A
/// byte of qkv and of hidden, of which there is most, costs 2 C / e FLOP, one of attended 2 T / e:
/// with sequences much longer than the width, name other `tensors`.
constexpr std::array kSelectable{BlockTensor::qkv, BlockTensor::attended, BlockTensor::hidden};
constexpr std::array kSelected{"attended", "hidden"};

std::string recompute_key(const char* key) { return kSection + key; }

/// Refuses keys that belong to another kind of recompute than the one chosen.
void check_belonging(const Configuration& values, const std::string& mode, Refusals& refusals) {
  for (const auto& [name, to] :
       {std::pair{"interval", "full"}, {"number_checkpoints", "full"}, {"tensors", "selective"}}) {
    const std::string key = recompute_key(name);
    if (values.is_null(key) || mode == to) continue;
    refusals.add(refusal_of(values, {{key}},
                            "{} belongs to recompute \"{}\", but {} is \"{}\"; give one of the two",
                            key, to, recompute_key("recompute"), mode));
  }
}

/// The kind of recompute, with null replaced by what the other keys imply.
std::string recompute_mode(Configuration& values) {
  const std::string key = recompute_key("recompute");
  if (values.is_null(key)) {
    std::string mode = "none";
    std::string source = "default";
    for (const auto& [other, implied] : {std::pair{"number_checkpoints", "full"},
                                         {"interval", "full"},
                                         {"tensors", "selective"}}) {
      if (mode != "none" || values.is_null(recompute_key(other))) continue;
      mode = implied;
      source = recompute_key(other);
    }
    values.resolve(key, mode, source);
  }
  return values.text(key);
}

std::vector<BlockTensor> chosen_tensors(Configuration& values) {
  const std::string key = recompute_key("tensors");
  if (values.is_null(key)) values.resolve(key, kSelected, "default");
  std::vector<BlockTensor> tensors;
  for (const std::string& text : values.texts(key)) {
    const auto* const found = std::find_if(kSelectable.begin(), kSelectable.end(),
                                           [&](BlockTensor each) { return name_of(each) == text; });
    if (found == kSelectable.end()) {
      throw refusal_of(values, {{key}},
                       "{}: found \"{}\", expected some of \"qkv\", \"attended\", \"hidden\"", key,
                       text);
    }
    tensors.push_back(*found);
  }
  return tensors;
}

/// Refuses groups that another key contradicts, or that the model is too small for.
void check_groups(const Configuration& values, std::int64_t layers, Refusals& refusals) {
  const std::string groups = recompute_key("number_checkpoints");
  const std::string interval = recompute_key("interval");
  if (values.is_null(groups)) return;
  const std::int64_t count = values.integer(groups);
  if (!values.is_null(interval)) {
    refusals.add(refusal_of(
        values, {{interval}, {groups}},
        "{} is {} and {} is {}: the first keeps one input a group of blocks, the second that of "
        "every so many; give one of the two",
        groups, count, interval, values.integer(interval)));
  }
  if (count > layers) {
    refusals.add(refusal_of(
        values, {{groups, layers}},
        "{} is {}, but model.layers is {}: a group has at least one block; give at most {}", groups,
        count, layers, layers));
  }
}

RecomputePlan full_plan(const Configuration& values, std::int64_t layers) {
  const std::string groups = recompute_key("number_checkpoints");
  const std::string interval = recompute_key("interval");
  if (!values.is_null(groups)) {
    return RecomputePlan::grouped(layers, std::min(values.integer(groups), layers));
  }
  return RecomputePlan::full(layers, values.is_null(interval) ? 1 : values.integer(interval));
}

}  // namespace

TrainConfig::Recompute make_recompute(Configuration& values, std::int64_t layers,
                                      Refusals& refusals) {
  const std::string mode = recompute_mode(values);
  check_belonging(values, mode, refusals);
  TrainConfig::Recompute recompute;
  const auto& limit = values.at("run.memory_limit").value;
  if (!limit.is_null()) recompute.memory_limit = *bytes_of(limit);
  recompute.automatic = mode == "auto";
  if (recompute.automatic && recompute.memory_limit == 0) {
    refusals.add(
        fmt::format("{}: {} is \"auto\", which makes the run fit run.memory_limit, but that is not "
                    "given; give the bytes that a rank may use, for example \"8GiB\"",
                    values.source(), recompute_key("recompute")),
        {"run.memory_limit=BYTES"});
  }
  if (mode == "full") {
    check_groups(values, layers, refusals);
    recompute.plan = full_plan(values, layers);
  }
  if (mode == "selective") {
    refusals.collect(
        [&] { recompute.plan = RecomputePlan::selective(layers, chosen_tensors(values)); });
  }
  recompute.plan.partition_inputs = values.boolean(recompute_key("partition_activations"));
  recompute.plan.inputs_on_host = values.boolean(recompute_key("cpu_checkpointing"));
  if (const std::string keep = recompute_key("keep_outputs"); !values.is_null(keep)) {
    recompute.plan.outputs = values.boolean(keep) ? BlockOutputs::kept : BlockOutputs::again;
  }
  return recompute;
}

std::vector<Option> recompute_options() {
  using enum ValueType;
  return {
      honour(recompute_key("recompute"), text, "null",
             "what of the blocks' activations backward computes again instead of keeping them: "
             "\"none\"; \"full\": all but a block's input; \"selective\": `tensors`; \"auto\": the "
             "fewest FLOP with which the run fits run.memory_limit. null: what the other "
             "keys here imply, else \"none\". No bit of a run depends on it")
          .one_of({"none", "full", "selective", "auto"}),
      honour(
          recompute_key("keep_outputs"), boolean, "null",
          "whether backward reads the outputs of norms and GELU that forward, or `recompute`, "
          "made, or computes them once more, a pass over memory each. null: true on a GPU, false "
          "on CPUs. No bit of a run on CPUs depends on it; on GPUs last bits do"),
      honour(recompute_key("interval"), integer, "null",
             "with \"full\": only of blocks 0, K, 2K, ...; null: of all")
          .from(1, 1e6),
      honour(recompute_key("tensors"), text_list, "null",
             "with \"selective\": some of \"qkv\", \"attended\", \"hidden\"; null: the last two"),
      honour(recompute_key("number_checkpoints"), integer, "null",
             "with \"full\": groups of consecutive blocks, each of which keeps one input and whose "
             "backward computes the whole group again")
          .from(1, 1e6),
      honour(recompute_key("partition_activations"), boolean, "false",
             "tensor ranks keep a share each of inputs kept alone and all-gather them in backward; "
             "no effect with one tensor rank, or with mesh.sequence_parallel, which does so too"),
      honour(recompute_key("cpu_checkpointing"), boolean, "false",
             "inputs of blocks that are computed again whole are in pinned host memory from their "
             "forward until their backward is near; on a CPU they are in its memory anyway"),
      accept(recompute_key("contiguous_memory_optimization"), boolean, "false",
             "all activations have fixed places in one block of memory"),
      accept(recompute_key("synchronize_checkpoint_boundary"), boolean, "false",
             "work is ordered by events; no boundary needs the host to wait"),
      accept(recompute_key("profile"), boolean, "false",
             "run.profile times all work, repeated work too"),
      honour("run.memory_limit", bytes, "null",
             "bytes that a rank may use, of its GPU, or of the host on a CPU: a number, or a text "
             "such as \"8GiB\"; a run whose plan is larger ends before step 1. Of a GPU leave out "
             "1 GiB "
             "for CUDA's context and libraries, and 1 GiB for NCCL. null: no limit"),
  };
}

}  // namespace zero
