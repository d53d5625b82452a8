// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/option.h"

namespace zero {
namespace {

std::vector<Option> reduction_options() {
  using enum ValueType;
  const std::string exact = "sums are fp32 in the order of the exact tree, then scaled once";
  return {
      only("prescale_gradients", boolean, "false", exact),
      only("gradient_predivide_factor", number, "1.0", exact),
      only("gradient_allreduce_op", text, "\"mean\"",
           "the gradient is the mean over the step's tokens"),
      accept("communication_data_type", text, "null",
             "gradients travel in the dtype they are computed in, partial sums in fp32")
          .one_of({"fp32", "bf16", "bfp16", "fp16"}),
      accept("seq_parallel_communication_data_type", text, "\"fp32\"", "sequences are not split"),
      accept("sparse_gradients", boolean, "false",
             "embedding gradients are dense, with equal sums"),
      only("disable_allgather", boolean, "false", "sharded parameters must be gathered"),
      accept("managed_gradient_accumulation", boolean, "true", "accumulation is always managed"),
  };
}

std::vector<Option> report_options() {
  using enum ValueType;
  const std::string log = "run.log and the console have the figures";
  return {
      accept("wall_clock_breakdown", boolean, "false", log),
      accept("memory_breakdown", boolean, "false", log),
      accept("dump_state", boolean, "false", "--print-config prints what took effect"),
      accept("log_level", text, "null", log),
      accept("tensorboard", anything, "null", log),
      accept("wandb", anything, "null", log),
      accept("csv_monitor", anything, "null", log),
      accept("comet", anything, "null", log),
      accept("monitor_config", anything, "null", log),
      accept("comms_config", anything, "null", log),
      accept("comms_logger.enabled", boolean, "false", log),
      accept("comms_logger.verbose", boolean, "false", log),
      accept("comms_logger.prof_all", boolean, "true", log),
      accept("comms_logger.debug", boolean, "false", log),
      accept("comms_logger.prof_ops", anything, "null", log),
      accept("flops_profiler.enabled", boolean, "false", log),
      accept("flops_profiler.recompute_fwd_factor", number, "0.0", log),
      accept("flops_profiler.profile_step", integer, "1", log),
      accept("flops_profiler.module_depth", integer, "-1", log),
      accept("flops_profiler.top_modules", integer, "1", log),
      accept("flops_profiler.detailed", boolean, "true", log),
      accept("flops_profiler.output_file", text, "null", log),
  };
}

std::vector<Option> checkpoint_file_options() {
  using enum ValueType;
  const std::string files = "checkpoints are run.checkpoint's, in a layout of their own";
  return {
      accept("checkpoint.tag_validation", text, "\"Warn\"", files),
      only("checkpoint.load_universal", boolean, "false",
           "a run goes on from run.checkpoint.folder; DeepSpeed's universal checkpoints are not "
           "read: give the weights as a Hugging Face folder, model.hf"),
      accept("checkpoint.use_node_local_storage", boolean, "false", files),
      accept("checkpoint.parallel_write", anything, "null", files),
      accept("checkpoint.checkpoint_serialization", boolean, "true", files),
      accept("checkpoint.writer", anything, "null", files),
      unless_enabled("datastates_ckpt", files),
      unless_enabled("nebula", files),
  };
}

std::vector<Option> other_options() {
  using enum ValueType;
  const std::string layers = "the models' own layers say how they are cut";
  const std::string stages = "there is one pipeline stage";
  const std::string compiled = "nothing is compiled at run time";
  const std::string order = "batches follow data.train, in order or by data.shuffle";
  return {
      only("dataloader_drop_last", boolean, "false", "batches run on from one epoch into the next"),
      accept("zero_allow_untested_optimizer", boolean, "false", "every optimizer here is tested"),
      accept("zero_force_ds_cpu_optimizer", boolean, "true", "there is one implementation"),
      accept("graph_harvesting", boolean, "false",
             "run.graphs decides whether passes are captured as CUDA graphs"),
      honour("vocabulary_size", integer, "null", "must equal model.vocabulary").from(2, 2147483647),
      honour("tensor_parallel.autotp_size", integer, "0",
             "DeepSpeed's name of mesh.tensor; 0: as mesh.tensor says")
          .from(0, 1e6),
      accept("tensor_parallel.preset_model", text, "null", layers),
      accept("tensor_parallel.tp_overlap_comm", boolean, "false",
             "zero_optimization.overlap_comm decides it"),
      accept("tensor_parallel.partition_config", anything, "null", layers),
      unless_enabled("expert_parallel", "the models here have no experts"),
      only("pipeline.stages", integer, "1", stages),
      accept("pipeline.partition", text, "null", stages),
      accept("pipeline.seed_layers", boolean, "false", stages),
      accept("pipeline.activation_checkpoint_interval", integer, "0", "see recompute"),
      accept("pipeline.pipe_partitioned", boolean, "true", stages),
      accept("pipeline.grad_partitioned", boolean, "true", stages),
      unless_enabled("autotuning", "nothing is tuned behind the configuration's back"),
      unless_enabled("elasticity",
                     "the batch is what train_batch_size says, for any world, and run.elastic has "
                     "any number of ranks take part"),
      accept("compile.enabled", boolean, "false", compiled),
      accept("compile.backend", text, "null", compiled),
      accept("compile.kwargs", anything, "null", compiled),
      accept("compile.disable", boolean, "false", compiled),
      accept("compile.deepcompile", boolean, "false", compiled),
      accept("compile.passes", anything, "null", compiled),
      accept("compile.debug_log", boolean, "false", compiled),
      accept("compile.free_activation", boolean, "false", compiled),
      accept("compile.double_buffer", boolean, "true", compiled),
      accept("compile.symmetric_memory", boolean, "false", compiled),
      accept("compile.sync_before_reduce", boolean, "false", compiled),
      accept("compile.sync_after_reduce", boolean, "false", compiled),
      accept("compile.sync_before_allgather", boolean, "false", compiled),
      accept("compile.sync_after_allgather", boolean, "false", compiled),
      accept("compile.keep_int_input_tensors", boolean, "true", compiled),
      accept("compile.keep_all_input_tensors", boolean, "false", compiled),
      only("compile.offload_activation", boolean, "false", "recompute keeps less instead"),
      only("compile.offload_opt_states", boolean, "false",
           "zero_optimization.offload_optimizer decides"),
      only("compile.offload_parameters", boolean, "false",
           "zero_optimization.offload_param decides"),
      unless_enabled("zenflow", "updates are never delayed"),
      unless_enabled("hybrid_engine", "there is one engine"),
      unless_enabled("curriculum_learning", order),
      unless_enabled("data_efficiency", order),
      unless_enabled("progressive_layer_drop", "every step computes every layer"),
      unless_enabled("eigenvalue", "no quantization follows eigenvalues"),
      unless_enabled("compression_training",
                     "weights are trained as they are; zero_generate "
                     "--save-quantized compresses them afterwards"),
      unless_enabled("quantize_training", "weights are trained as they are"),
      only("sequence_parallel_size", integer, "1",
           "a sequence is computed whole, and every rank that is no tensor rank counts in "
           "train_batch_size"),
      unless_enabled("sequence_parallel",
                     "a sequence is computed whole, but for mesh.sequence_parallel's rows"),
      unless_disabled("sparse_attention", "attention is dense and exact"),
  };
}

}  // namespace

std::vector<Option> deepspeed_options() {
  std::vector<Option> all;
  for (auto part :
       {reduction_options(), report_options(), checkpoint_file_options(), other_options()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace zero
