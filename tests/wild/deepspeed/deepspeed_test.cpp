// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Configurations that people have for DeepSpeed, written anew: a start accepts one, or refuses all
// that there is to refuse and names the --set line with which the next start accepts it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/config/train_config.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero {
namespace {

using ::testing::HasSubstr;

/// A file, and what the first start says of it to a user who has given model and data.
struct Wild {
  std::string name;
  int world = 1;
  int refusals = 0;                              // 0: accepted at once
  std::vector<std::string> said;                 // parts of the message
  std::map<std::string, nlohmann::json> values;  // once accepted
};
void PrintTo(const Wild& wild, std::ostream* out) { *out << wild.name; }

/// The words of a shell's line: single quotes alone have a meaning.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words{""};
  bool quoted = false;
  for (const char c : line) {
    if (c == '\'') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

class WildConfigurations : public ::testing::TestWithParam<Wild> {
 protected:
  WildConfigurations() {
    std::filesystem::create_directory(folder_.path("model"));
    folder_.write("model/config.json",
                  R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4,
                      "n_positions": 64, "vocab_size": 256})");
  }

  /// What a start does before any file but the configuration and the model's is read.
  TrainConfig start(const std::vector<std::string>& sets) const {
    Refusals refusals;
    Configuration values = Configuration::read(path(), with_machine(sets), &refusals);
    return make_train_config(std::move(values), GetParam().world, 0, std::move(refusals));
  }

  std::string refusal(const std::vector<std::string>& sets) const {
    return error_of([&] { start(sets); });
  }

  /// The last --set line of a message, with the user's own names in the place of capitals.
  std::vector<std::string> answer_in(const std::string& message) const {
    const std::size_t at = message.rfind("--set ");
    if (at == std::string::npos) return {};
    std::vector<std::string> sets = words_of(message.substr(at + 6));
    for (std::string& set : sets) {
      if (set.ends_with("=FILE")) set.replace(set.size() - 4, 4, "a.bin");
      if (set.ends_with("=FOLDER")) set.replace(set.size() - 6, 6, folder_.path("model"));
    }
    return sets;
  }

  std::vector<std::string> own() const {
    return {"data.train=a.bin", "model.hf=" + folder_.path("model")};
  }

 private:
  static std::string path() {
    return std::string(ZERO_DEEPSPEED) + "/" + GetParam().name + ".json";
  }
  /// Otherwise asked of the machine.
  static std::vector<std::string> with_machine(std::vector<std::string> sets) {
    sets.insert(sets.end(), {"run.device=cpu", "run.threads=1"});
    return sets;
  }

  testing::Scratch folder_;
};

int refusals_in(const std::string& message) {
  if (message == "no error") return 0;
  const auto lines = std::ranges::count(message, '\n');
  return lines == 0 ? 1 : static_cast<int>(lines) - 1;
}

TEST_P(WildConfigurations, AreAcceptedOrSayHowInOneRound) {
  const std::string message = refusal(own());
  EXPECT_EQ(GetParam().refusals, refusals_in(message)) << message;
  for (const std::string& part : GetParam().said) EXPECT_THAT(message, HasSubstr(part));
  std::vector<std::string> sets = own();
  std::ranges::copy(answer_in(message), std::back_inserter(sets));
  ASSERT_EQ("no error", refusal(sets)) << "after " << message;
  const TrainConfig config = start(sets);
  for (const auto& [key, value] : GetParam().values) {
    EXPECT_EQ(value, config.values.at(key).value) << key;
  }
}

TEST_P(WildConfigurations, AloneTakeOneLineToo) {
  const std::string message = refusal({});
  EXPECT_THAT(message, HasSubstr("An answer to all of them"));
  EXPECT_EQ("no error", refusal(answer_in(message))) << "after " << message;
}

INSTANTIATE_TEST_SUITE_P(
    Public, WildConfigurations,
    ::testing::Values(
        Wild{"trainer_zero2_auto",
             2,
             2,
             {"9 values are \"auto\"", "gradient_clipping=1.0",
              "'optimizer.params.betas=[0.9,0.999]'", "scheduler.params.warmup_num_steps=10",
              "neither train_batch_size nor"},
             {{"zero_optimization.stage", 2},
              {"zero_optimization.offload_optimizer.device", "cpu"},
              {"zero_optimization.reduce_bucket_size", 200000000},
              {"scheduler.params.warmup_max_lr", 0.001},
              {"train_batch_size", 2},
              {"steps_per_print", 2000}}},
        Wild{"trainer_zero3_fixed",
             1,
             1,
             {"train_micro_batch_size_per_gpu=1"},
             {{"zero_optimization.offload_param.device", "cpu"},
              {"zero_optimization.stage3_prefetch_bucket_size", 0},
              {"optimizer.params.betas", {0.8, 0.999}},
              {"scheduler.params.warmup_num_steps", 500},
              {"fp16.enabled", true}}},
        Wild{"accelerate_zero3_decay",
             4,
             2,
             {"5 values are \"auto\""},
             {{"scheduler.type", "WarmupDecayLR"},
              {"scheduler.params.total_num_steps", 100},
              {"zero_optimization.stage3_param_persistence_threshold", nullptr}}},
        Wild{"accelerate_sequence_parallel",
             4,
             1,
             {"train_micro_batch_size_per_gpu=1"},
             {{"bf16.enabled", true}, {"train_batch_size", 4}}},
        Wild{
            "factory_zero0_monitor", 1, 2, {"3 values are \"auto\""}, {{"gradient_clipping", 1.0}}},
        Wild{"factory_zero2_tensor",
             4,
             2,
             {"3 values are \"auto\""},
             {{"mesh.tensor", 2}, {"mesh.shard", 2}, {"zero_optimization.overlap_comm", false}}},
        Wild{"factory_zero3_fp8",
             1,
             2,
             {"fp8 is not offered: fp16.enabled and bf16.enabled decide", "fp8=null"},
             {{"gradient_clipping", 0.001},
              {"zero_optimization.stage3_param_persistence_threshold", 35840}}},
        Wild{
            "factory_zero3_ulysses",
            1,
            3,
            {"sequence_parallel is not offered", "sequence_parallel=null", "7 values are \"auto\""},
            {{"bf16.enabled", true}}},
        Wild{"factory_zero3_quantized_gradients",
             1,
             3,
             {"zero_optimization.zero_quantized_gradients=null", "gradient_clipping is \"auto\""},
             {{"zero_optimization.stage3_prefetch_bucket_size", 200000000}}},
        Wild{"axolotl_zero1_compile", 1, 2, {"3 values"}, {{"fp16.initial_scale_power", 32}}},
        Wild{"axolotl_zero3_bf16",
             8,
             2,
             {"gradient_clipping is \"auto\""},
             {{"zero_optimization.stage3_max_live_parameters", 0},
              {"zero_optimization.stage3_prefetch_bucket_size", nullptr}}},
        Wild{"fastchat_zero3",
             1,
             2,
             {"fp16.enabled is \"auto\""},
             {{"zero_optimization.stage3_param_persistence_threshold", 1000000}}},
        Wild{"examples_one_cycle",
             16,
             1,
             {"\"OneCycle\" is not offered", "\"linear\" goes up and down as it does",
              "scheduler.params.cycle_first_step_size"},
             {{"scheduler.type", "linear"},
              {"scheduler.params.warmup_num_steps", 1000},
              {"scheduler.params.total_num_steps", 1100},
              {"optimizer.params.lr", 0.015},
              {"train_batch_size", 512}}},
        Wild{"examples_infinity_nvme",
             1,
             1,
             {"did you mean \"zero_optimization.stage3_param_persistence_threshold\"?",
              "zero_optimization.stage3_param_persitance_threshold=null "
              "zero_optimization.stage3_param_persistence_threshold=100000"},
             {{"fp16.loss_scale", 1024},
              {"train_batch_size", 4},
              {"zero_optimization.offload_param.device", "nvme"},
              {"zero_optimization.offload_param.max_in_cpu", 1},
              {"zero_optimization.stage3_param_persistence_threshold", 100000},
              {"zero_optimization.offload_optimizer.device", "nvme"},
              {"zero_optimization.offload_optimizer.pipeline_read", false},
              {"aio.queue_depth", 16},
              {"aio.intra_op_parallelism", 2}}},
        Wild{"examples_curriculum",
             8,
             2,
             {"curriculum_learning is not offered", "give gradient_clipping, which is given too",
              "optimizer.params.max_grad_norm=null"},
             {{"gradient_clipping", 1.0}, {"optimizer.params.betas", {0.9, 0.95}}}},
        Wild{"examples_squad_adam",
             4,
             2,
             {"optimizer.params.max_grad_norm = 1.0 has no effect under this name: give "
              "gradient_clipping",
              "gradient_clipping=1.0", "optimizer.params.bias_correction=null"},
             {{"gradient_clipping", 1.0}, {"gradient_accumulation_steps", 1}}},
        Wild{"examples_predivided",
             64,
             4,
             {"optimizer.type: found \"OneBitAdam\"", "optimizer.params.freeze_step=null",
              "To \"OneBitAdam\" belong", "prescale_gradients=null"},
             {{"optimizer.type", "AdamW"}, {"optimizer.params.lr", 0.001}}},
        Wild{"flattened_offload",
             2,
             4,
             {"scheduler.type=linear", "2 values are \"auto\""},
             {{"zero_optimization.stage", 3},
              {"zero_optimization.offload_param.device", "cpu"},
              {"comms_logger.prof_all", true},
              {"optimizer.type", "AdamW"},
              {"optimizer.params.lr", 0.01},
              {"scheduler.params.total_num_steps", 40}}},
        Wild{"neox_base", 4, 0, {}, {{"scheduler.params.warmup_num_steps", 5000}}},
        Wild{"megatron_sequence", 16, 0, {}, {{"fp16.initial_scale_power", 11}}},
        Wild{"self_control_sparse",
             1,
             3,
             {"sparse_attention is not offered: attention is dense and exact"},
             {{"scheduler.params.warmup_min_lr", 1e-6}}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Offload, WildConfigurations,
    ::testing::Values(
        Wild{"texts",
             1,
             0,
             {},
             {{"fp16.enabled", true},
              {"fp16.hysteresis", 2},
              {"zero_optimization.stage", 3},
              {"zero_optimization.overlap_comm", true},
              {"zero_optimization.reduce_bucket_size", 50000000},
              {"zero_optimization.offload_optimizer.ratio", 0.3},
              {"gradient_accumulation_steps", 8},
              {"optimizer.params.lr", 3e-5},
              {"optimizer.params.betas", {0.9, 0.95}}}},
        Wild{"aio_inside",
             1,
             3,
             {"unknown key \"zero_optimization.aio\"; did you mean \"aio\" at the top level?",
              "zero_optimization.aio=null aio.block_size=262144", "2 values are \"auto\""},
             {{"aio.block_size", 262144},
              {"aio.queue_depth", 32},
              {"aio.intra_op_parallelism", 1},
              {"zero_optimization.offload_optimizer.device", "nvme"}}},
        Wild{"offload_outside",
             1,
             2,
             {"unknown key \"offload_optimizer\"; did you mean "
              "\"zero_optimization.offload_optimizer\"?",
              "offload_optimizer=null zero_optimization.offload_optimizer.device=nvme"},
             {{"zero_optimization.offload_optimizer.device", "nvme"},
              {"zero_optimization.offload_optimizer.nvme_path", "/local_nvme"},
              {"zero_optimization.offload_param.device", "cpu"}}},
        Wild{"offload_text",
             1,
             3,
             {"zero_optimization.offload_optimizer: found \"nvme\", expected an object",
              "zero_optimization.offload_optimizer=null "
              "zero_optimization.offload_optimizer.device=nvme",
              "is \"nvme\" without zero_optimization.offload_optimizer.nvme_path"},
             {{"zero_optimization.offload_optimizer.device", "nvme"},
              {"zero_optimization.offload_param.device", "none"}}},
        Wild{"examples_offload_10b",
             10,
             1,
             {"unknown key \"zero_optimization.comm_overlap\""},
             {{"zero_optimization.offload_optimizer.device", "cpu"},
              {"fp16.loss_scale", 4096},
              {"train_micro_batch_size_per_gpu", 1}}},
        Wild{"zero3_nvme_cpu",
             2,
             2,
             {"bf16.enabled is \"auto\""},
             {{"zero_optimization.offload_optimizer.device", "nvme"},
              {"zero_optimization.offload_param.device", "cpu"},
              {"aio.intra_op_parallelism", 1}}},
        Wild{"idle_buffers",
             8,
             1,
             {"checkpoint.load_universal = true is not offered"},
             {{"zero_optimization.offload_optimizer.device", "cpu"}, {"bf16.enabled", true}}},
        Wild{"lightning_older_names",
             1,
             1,
             {"train_micro_batch_size_per_gpu=1"},
             {{"zero_optimization.offload_optimizer.device", "cpu"},
              {"zero_optimization.offload_param.device", "cpu"},
              {"scheduler.params.warmup_max_lr", 3e-5}}},
        Wild{"superoffload",
             1,
             0,
             {},
             {{"zero_optimization.offload_optimizer.device", "cpu"},
              {"zero_optimization.offload_optimizer.ratio", 0.9}}},
        Wild{"gds_threads",
             1,
             2,
             {"unknown key \"aio.num_threads\"", "aio.use_gds=null"},
             {{"aio.queue_depth", 128},
              {"aio.block_size", 8388608},
              {"zero_optimization.offload_optimizer.device", "nvme"}}},
        Wild{"commented",
             4,
             2,
             {"unknown key \"step_per_print\"; did you mean \"steps_per_print\"?",
              "step_per_print=null steps_per_print=10"},
             {{"steps_per_print", 10},
              {"optimizer.params.betas", {0.8, 0.999}},
              {"zero_optimization.offload_optimizer.device", "nvme"}}},
        Wild{"ratio_nvme",
             1,
             0,
             {},
             {{"zero_optimization.offload_optimizer.device", "nvme"},
              {"zero_optimization.offload_optimizer.ratio", 0.5}}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace zero
