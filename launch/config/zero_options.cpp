// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/option.h"

namespace zero {

std::vector<Option> zero_options() {
  using enum ValueType;
  const std::string quantized = "the exact sum needs gradients and weights that are not quantized";
  const std::string groups = "each shard group gathers from its own ranks alone";
  std::vector<Option> all{
      honour("stage", integer, "0",
             "what is sharded: 0 nothing, 1 optimizer, 2 + gradients, 3 + parameters")
          .from(0, 3),
      honour("overlap_comm", boolean, "null",
             "collectives run beside compute; null: true (it cannot change a bit here)"),
      honour("stage3_prefetch_bucket_size", integer, "null",
             "elements gathered ahead of use, at most; null: two units, more before larger ones")
          .from(0, 9.2e18),
      honour("stage3_max_live_parameters", integer, "null",
             "elements gathered at once, at most; null: 1000000000, or two units that follow one "
             "another if these are more")
          .from(0, 9.2e18),
      honour("stage3_param_persistence_threshold", integer, "null",
             "parameters of at most this many elements stay whole; null: 100000, and, unless "
             "stage3_prefetch_bucket_size is given, units that take no more memory whole")
          .from(0, 9.2e18),
      honour("stage3_max_reuse_distance", integer, "0",
             "keep a unit whose next use is at most this many elements away")
          .from(0, 9.2e18),
      honour("reduce_bucket_size", integer, "0",
             "elements of one reduction, at most; 0: a unit is reduced whole, but by exact sums in "
             "pieces of which a rank receives 8 MiB (GPUs: 64 MiB)")
          .from(0, 9.2e18),
      accept("allgather_bucket_size", integer, "500000000", "gathers are cut by units"),
      accept("contiguous_gradients", boolean, "true", "a unit's gradients are always contiguous"),
      accept("reduce_scatter", boolean, "true", "the stage decides the collective"),
      accept("use_multi_rank_bucket_allreduce", boolean, "true",
             "the stage decides the collective"),
      accept("allgather_partitions", boolean, "true",
             "shards are always gathered in one collective"),
      accept("load_from_fp32_weights", boolean, "true",
             "weights are always read into fp32 masters"),
      accept("elastic_checkpoint", boolean, "false", "weights fit any world"),
      accept("sub_group_size", integer, "1000000000", "the update is elementwise, in units"),
      accept("stage3_model_persistence_threshold", integer, "9223372036854775807",
             "stage3_param_persistence_threshold alone decides"),
      accept("stage3_gather_16bit_weights_on_model_save", boolean, "false",
             "run.save_weights writes whole fp32 weights"),
      accept("stage3_module_granularity_threshold", integer, "0",
             "units are registered by the model"),
      accept("stage3_use_all_reduce_for_fetch_params", boolean, "false",
             "gathers are always all-gathers"),
      accept("stage3_allgather_sequential", boolean, "false", "the schedule is static"),
      accept("ignore_unused_parameters", boolean, "true", "an unwritten gradient counts as zero"),
      accept("legacy_stage1", boolean, "false", "there is one stage 1"),
      accept("round_robin_gradients", boolean, "false", "every rank owns a slice of every unit"),
      honour("zero_hpz_partition_size", integer, "1",
             "DeepSpeed's: as mics_shard_size; 1: as mesh.shard says")
          .from(1, 1e6),
      only("zero_quantized_weights", boolean, "false", quantized),
      only("zero_quantized_nontrainable_weights", boolean, "false", quantized),
      only("zero_quantized_gradients", boolean, "false", quantized),
      unless_disabled("zeropp_loco_param", quantized),
      honour("mics_shard_size", integer, "-1",
             "DeepSpeed's name of mesh.shard, with mesh.replicate -1; -1: as mesh.shard says")
          .from(-1, 1e6),
      accept("mics_hierarchical_params_gather", boolean, "false", groups),
      accept("memory_efficient_linear", boolean, "true", "layers keep no copy of their weights"),
      accept("pipeline_loading_checkpoint", boolean, "false", "each rank reads only its bytes"),
      accept("override_module_apply", boolean, "true", "initial values do not depend on it"),
      accept("log_trace_cache_warnings", boolean, "false", "the schedule is static: no trace"),
      accept("enable_sanity_checks", boolean, "false", "checks are always on"),
      accept("save_muon_momentum_buffer_in_memory", boolean, "false", "Muon is not used"),
      accept("leaf_module", anything, "null", "units are registered by the model"),
      unless_disabled("zenflow", "updates are never delayed"),
  };
  for (Option& option : all) option.path = "zero_optimization." + option.path;
  return all;
}

}  // namespace zero
