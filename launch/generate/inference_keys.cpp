// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <map>

#include "launch/generate/deepspeed_inference.h"
#include "tiers/tier_file.h"

namespace zero {
namespace {

/// What inference does with a section or key of DeepSpeed's that it does not honour.
std::vector<Option> sharding_options() {
  using enum ValueType;
  const std::string reduced = "nothing is reduced without gradients";
  const std::string whole = "norms and biases are whole on every rank";
  return {
      honour("zero_optimization.stage", integer, "3",
             "3: ranks share weights; 0: each keeps all of them")
          .from(0, 3),
      honour("zero_optimization.stage3_prefetch_bucket_size", number, "5e7",
             "elements gathered ahead of use: --windows less one, in blocks")
          .from(0),
      honour("zero_optimization.stage3_max_live_parameters", number, "1e9",
             "elements gathered at once: --windows, in blocks")
          .from(0),
      accept("zero_optimization.stage3_max_reuse_distance", number, "1e9",
             "a block is used once in a pass"),
      accept("zero_optimization.stage3_param_persistence_threshold", number, "1e5", whole),
      accept("zero_optimization.stage3_model_persistence_threshold", number, "9e18", whole),
      accept("zero_optimization.stage3_gather_16bit_weights_on_model_save", boolean, "false",
             "nothing is saved"),
      accept("zero_optimization.sub_group_size", number, "1e9", "there is no optimizer"),
      accept("zero_optimization.contiguous_gradients", boolean, "true", reduced),
      accept("zero_optimization.reduce_scatter", boolean, "true", reduced),
      accept("zero_optimization.reduce_bucket_size", number, "5e8", reduced),
      accept("zero_optimization.allgather_partitions", boolean, "true",
             "blocks are gathered whole"),
      accept("zero_optimization.allgather_bucket_size", number, "5e8", "blocks are gathered whole"),
      accept("zero_optimization.overlap_comm", boolean, "true",
             "blocks are gathered while the one before computes"),
      accept("zero_optimization.round_robin_gradients", boolean, "false", reduced),
      accept("zero_optimization.memory_efficient_linear", boolean, "true",
             "products read weights as they are stored"),
      honour("zero_optimization.offload_param.device", text, "\"none\"",
             "weights stay in device memory, or \"nvme\" has them in files of nvme_path: more "
             "ranks share them, and --weights nf4 makes them smaller")
          .one_of({"none", "nvme"}),
      honour("zero_optimization.offload_param.nvme_path", text, "null", "--offload-weights"),
      accept("zero_optimization.offload_param.pin_memory", boolean, "true",
             "slots are registered with the disk's queue if locked memory allows"),
      accept("zero_optimization.offload_param.buffer_count", integer, "5",
             "--windows says how many blocks are read ahead"),
      accept("zero_optimization.offload_param.buffer_size", number, "1e8",
             "a slot is as large as a rank's part of a block"),
      accept("zero_optimization.offload_param.max_in_cpu", number, "1e9",
             "all blocks are in the file"),
      unless_enabled("zero_optimization.offload_optimizer", "there is no optimizer"),
      only("zero_optimization.zero_quantized_weights", boolean, "false",
           "what travels has the bits of the weights: --weights int8 makes both smaller"),
      only("zero_optimization.zero_hpz_partition_size", integer, "1",
           "--replicate N keeps N copies of the model"),
      only("zero_optimization.mics_shard_size", integer, "-1",
           "--replicate N keeps N copies of the model"),
  };
}

std::vector<Option> inference_engine_options() {
  using enum ValueType;
  const std::string batch = "--requests answers so many at once, and the rest after them";
  const std::string kernels = "there is one implementation, which is always used";
  const std::string log = "the last lines tell speed and memory";
  return {
      honour("dtype", text, "\"fp32\"", "--dtype; int8 is --weights int8"),
      honour("bf16.enabled", boolean, "false", "--dtype bf16"),
      honour("fp16.enabled", boolean, "false", "--dtype fp16"),
      honour("tensor_parallel.tp_size", integer, "1", "--tensor").from(1, 1 << 20),
      honour("tensor_parallel.autotp_size", integer, "0", "--tensor; 0: one").from(0, 1 << 20),
      accept("tensor_parallel.enabled", boolean, "true", "tp_size tells"),
      accept("tensor_parallel.tp_grain_size", integer, "64", "shares may be uneven"),
      honour("mp_size", integer, "1", "--tensor").from(1, 1 << 20),
      accept("train_batch_size", integer, "null", batch),
      accept("train_micro_batch_size_per_gpu", integer, "null", batch),
      accept("gradient_accumulation_steps", integer, "null", batch),
      accept("steps_per_print", number, "null", log),
      accept("wall_clock_breakdown", boolean, "false", log),
      accept("memory_breakdown", boolean, "false", log),
      accept("kernel_inject", boolean, "false", kernels),
      accept("use_triton", boolean, "false", kernels),
      accept("triton_autotune", boolean, "false", kernels),
      accept("enable_cuda_graph", boolean, "false",
             "a GPU captures passes of sizes that come again as graphs"),
      accept("replace_method", text, "null", kernels),
      accept("triangular_masking", boolean, "true", "attention is causal"),
      accept("return_tuple", boolean, "true", kernels),
      accept("set_empty_params", boolean, "false", "weights are read once, where they stay"),
      accept("keep_module_on_host", boolean, "false", "there is no second copy of the weights"),
      accept("max_tokens", integer, "1024",
             "the cache follows from prompts and --max-tokens, or --cache-tokens says"),
      accept("min_out_tokens", integer, "1",
             "the cache follows from prompts and --max-tokens, or --cache-tokens says"),
      only("quant", anything, "null", "weights have the formats of --weights: int8, nf4, q4"),
      only("weight_quantization", anything, "null",
           "weights have the formats of --weights: int8, nf4, q4"),
      only("checkpoint", anything, "null", "--model names the folder of weights"),
      only("injection_policy", anything, "null", "--model's config.json says how layers are cut"),
      only("moe", anything, "null", "the models here have no experts"),
      only("optimizer", anything, "null", "it is training's"),
      only("scheduler", anything, "null", "it is training's"),
      honour("aio.block_size", integer, "1048576", "bytes of one read or write, a multiple of 4096")
          .from(TierFile::kBlock, 1 << 30),
      honour("aio.queue_depth", integer, "8", "reads of a rank in flight").from(1, 4096),
      honour("aio.intra_op_parallelism", integer, "4", "threads that read without io_uring")
          .from(1, 1024),
      honour("aio.thread_count", integer, "4", "the older name of intra_op_parallelism")
          .from(1, 1024),
      honour("aio.single_submit", boolean, "false", "each read by a call of its own"),
      honour("aio.overlap_events", boolean, "true", "false: one transfer at a time"),
      only("aio.use_gds", boolean, "false", "files are read into host memory"),
  };
}

}  // namespace

const std::vector<Option>& inference_keys() {
  static const std::vector<Option> all = [] {
    std::vector<Option> table = sharding_options();
    std::ranges::move(inference_engine_options(), std::back_inserter(table));
    return table;
  }();
  return all;
}

std::string inference_key(std::string path) {
  static const std::map<std::string, std::string> kAlso{
      {"zero", "zero_optimization"}, {"bfloat16", "bf16"},
      {"tp", "tensor_parallel"},     {"replace_with_kernel_inject", "kernel_inject"},
      {"tm", "triangular_masking"},  {"max_out_tokens", "max_tokens"}};
  const std::size_t dot = std::min(path.find('.'), path.size());
  const auto found = kAlso.find(path.substr(0, dot));
  return found == kAlso.end() ? path : found->second + path.substr(dot);
}

}  // namespace zero
