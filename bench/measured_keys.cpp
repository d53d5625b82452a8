// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/measured_keys.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "launch/config/option.h"

namespace zero::bench {
namespace {

constexpr const char* kCounts = nullptr;
constexpr const char* kNoTime = "no time depends on this value";
constexpr const char* kNoGpu =
    "this section measures the CPU; `zero_bench gpu` measures a GPU's steps, and `zero_scale "
    "--device cuda` those of several";

constexpr std::array kSorted{
    MeasuredKey{"model", kCounts},
    MeasuredKey{"train_micro_batch_size_per_gpu", kCounts},
    MeasuredKey{"gradient_accumulation_steps", kCounts},
    MeasuredKey{"reduction", kCounts},
    MeasuredKey{"data_types.grad_accum_dtype", kCounts},
    MeasuredKey{"fp16", kCounts},  // skipped steps are shorter
    MeasuredKey{"bf16.bf16_optimizer_states", kCounts},
    MeasuredKey{"optimizer.type", kCounts},
    MeasuredKey{"optimizer.params.adam_w_mode", kCounts},
    MeasuredKey{"optimizer.params.momentum", kCounts},
    MeasuredKey{"optimizer.params.moments", kCounts},
    MeasuredKey{"zero_optimization.overlap_comm", kCounts},
    MeasuredKey{"zero_optimization.stage3_prefetch_bucket_size", kCounts},
    MeasuredKey{"zero_optimization.stage3_max_live_parameters", kCounts},
    MeasuredKey{"zero_optimization.stage3_param_persistence_threshold", kCounts},
    MeasuredKey{"zero_optimization.stage3_max_reuse_distance", kCounts},
    MeasuredKey{"zero_optimization.reduce_bucket_size", kCounts},
    MeasuredKey{"zero_optimization.zero_hpz_partition_size", kCounts},
    MeasuredKey{"zero_optimization.mics_shard_size", kCounts},
    MeasuredKey{"zero_optimization.offload_optimizer", kCounts},
    MeasuredKey{"zero_optimization.offload_param", kCounts},
    MeasuredKey{"aio", kCounts},
    MeasuredKey{"mesh.replicate", kCounts},
    MeasuredKey{"mesh.shard", kCounts},
    MeasuredKey{"mesh.check_every", kCounts},
    MeasuredKey{"mesh.sequence_parallel", kCounts},
    MeasuredKey{"mesh.chunks", kCounts},
    MeasuredKey{"activation_checkpointing.recompute", kCounts},
    MeasuredKey{"activation_checkpointing.keep_outputs", kCounts},
    MeasuredKey{"activation_checkpointing.interval", kCounts},
    MeasuredKey{"activation_checkpointing.tensors", kCounts},
    MeasuredKey{"activation_checkpointing.number_checkpoints", kCounts},
    MeasuredKey{"activation_checkpointing.partition_activations", kCounts},
    MeasuredKey{"run.memory_limit", kCounts},

    MeasuredKey{"zero_optimization.cpu_offload", "states of a CPU are in its memory"},
    MeasuredKey{"zero_optimization.cpu_offload_param", "parameters of a CPU are in its memory"},
    MeasuredKey{"activation_checkpointing.cpu_checkpointing",
                "activations of a CPU are in its memory"},
    MeasuredKey{"run.threads", "give --threads"},
    MeasuredKey{"train_batch_size", "give --batch"},
    MeasuredKey{"data.sequence_length", "give --sequence"},
    MeasuredKey{"zero_optimization.stage", "give --stages"},
    MeasuredKey{"mesh.tensor", "give --tensor"},
    MeasuredKey{"tensor_parallel.autotp_size", "give --tensor"},
    MeasuredKey{"bf16.enabled", "give --dtypes"},
    MeasuredKey{"torch_autocast", "give --dtypes"},
    MeasuredKey{"run.steps", "give --rounds"},
    MeasuredKey{"vocabulary_size", "give model.vocabulary"},
    MeasuredKey{"run.elastic", "all ranks of a measurement take part"},
    MeasuredKey{"run.device", kNoGpu},
    MeasuredKey{"run.sums", kNoGpu},
    MeasuredKey{"run.graphs", kNoGpu},
    MeasuredKey{"run.seed", kNoTime},
    MeasuredKey{"gradient_clipping", "the norm is computed whatever the limit"},
    MeasuredKey{"optimizer.params.lr", kNoTime},
    MeasuredKey{"optimizer.params.betas", kNoTime},
    MeasuredKey{"optimizer.params.eps", kNoTime},
    MeasuredKey{"optimizer.params.weight_decay", kNoTime},
    MeasuredKey{"scheduler", "all steps have one learning rate"},
    MeasuredKey{"data", "tokens are random"},
    MeasuredKey{"run.init", "initial values are drawn"},
    MeasuredKey{"run.flight_folder", "`zero_bench faults` measures the flight recorder"},
    MeasuredKey{"run.memory_growth", kNoTime},
    MeasuredKey{"run.memory_growth_action", kNoTime},
    MeasuredKey{"run.memory_trace", "nothing is traced"},
    MeasuredKey{"run.memory_trace_bytes", "nothing is traced"},
    MeasuredKey{"run.nonfinite", "steps are counted, whatever their loss"},
    MeasuredKey{"run.nonfinite_limit", "steps are counted, whatever their loss"},
    MeasuredKey{"run.check_collectives", "`zero_bench faults` measures steps with and without it"},
    MeasuredKey{"run.check_compute_every",
                "`zero_bench faults` measures steps with and without it"},
    MeasuredKey{"run.collective_warning", "zero_bench waits without a limit"},
    MeasuredKey{"run.collective_timeout", "zero_bench waits without a limit"},
    MeasuredKey{"run.watchdog", "zero_bench waits without a limit"},
    MeasuredKey{"run.watchdog_hosts", "zero_bench waits without a limit"},
    MeasuredKey{"run.hang_timeout", "zero_bench waits without a limit"},
    MeasuredKey{"run.faults", "no rank fails on purpose"},
    MeasuredKey{"run.fault_marks", "no rank fails on purpose"},
    MeasuredKey{"run.log", "nothing is logged"},
    MeasuredKey{"steps_per_print", "--rounds are printed as one line"},
    MeasuredKey{"run.profile", "`zero_train --profile` has it"},
    MeasuredKey{"run.trace", "`zero_train --trace FILE` has it"},
    MeasuredKey{"run.trace_from", "`zero_train --trace FILE` has it"},
    MeasuredKey{"run.trace_steps", "`zero_train --trace FILE` has it"},
    MeasuredKey{"run.trace_events", "`zero_train --trace FILE` has it"},
    MeasuredKey{"run.checkpoint", "`zero_bench checkpoint` measures saves"},
    MeasuredKey{"run.resume", "nothing is resumed"},
    MeasuredKey{"run.resume_changes", "nothing is resumed"},
    MeasuredKey{"run.stop_after", "the section ends after --rounds"},
    MeasuredKey{"run.save_weights", "nothing is saved"},
    MeasuredKey{"run.validation_every", "nothing is validated"},
    MeasuredKey{"run.validation_sequences", "nothing is validated"},
};

/// Why an override of `key` would measure nothing else; null if it would.
const char* reason_against(const std::string& key) {
  if (const MeasuredKey* row = find_measured_key(key)) return row->why_not;
  const Option* const option = find_option(key);
  if (option != nullptr && option->handling != Handling::honoured) return option->help.c_str();
  return nullptr;
}

}  // namespace

const MeasuredKey* find_measured_key(std::string_view key) {
  const auto* const exact = std::ranges::find(kSorted, key, &MeasuredKey::key);
  if (exact != kSorted.end()) return exact;
  const std::string whole(key);
  // Keys of the sections that have a row count alike, but for those that change nothing anywhere.
  const Option* const option = find_option(key);
  if (option != nullptr && option->handling != Handling::honoured) return nullptr;
  const auto* const section = std::ranges::find_if(kSorted, [&](const MeasuredKey& row) {
    return is_section(row.key) && whole.starts_with(std::string(row.key) + ".");
  });
  return section == kSorted.end() ? nullptr : section;
}

void check_overrides(const std::vector<std::string>& overrides) {
  for (const std::string& text : overrides) {
    const std::string key = canonical_path(text.substr(0, text.find('=')));
    const char* const why = reason_against(key);
    ZERO_CHECK(why == nullptr, "--set {}: changes nothing that is measured here: {}", text, why);
    ZERO_CHECK(!is_section(key) || find_measured_key(key) != nullptr,
               "--set {}: the flags here give keys of this section, which it would take out; give "
               "its keys one by one",
               text);
  }
}

}  // namespace zero::bench
