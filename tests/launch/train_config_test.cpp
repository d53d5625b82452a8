// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/train_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "base/error.h"
#include "launch/process/device_choice.h"
#include "launch/telemetry/run_report.h"
#include "launch/train/run_device.h"
#include "tests/launch/config_with.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(BatchArithmetic, AnyTwoGiveTheThird) {
  EXPECT_EQ(infer_batch({.train = 16, .micro = 2, .accumulation = 4}, 2), (Batch{16, 2, 4}));
  EXPECT_EQ(infer_batch({.train = 16, .micro = 2}, 2), (Batch{16, 2, 4}));
  EXPECT_EQ(infer_batch({.train = 16, .accumulation = 4}, 2), (Batch{16, 2, 4}));
  EXPECT_EQ(infer_batch({.micro = 2, .accumulation = 4}, 2), (Batch{16, 2, 4}));
  EXPECT_EQ(infer_batch({.train = 16}, 8), (Batch{16, 2, 1}));
  EXPECT_EQ(infer_batch({.micro = 3}, 5), (Batch{15, 3, 1}));
}

TEST(BatchArithmetic, ErrorsShowTheNumbers) {
  EXPECT_THAT(error_of([] { infer_batch({.train = 16, .micro = 2, .accumulation = 3}, 2); }),
              HasSubstr("train_batch_size 16 is not train_micro_batch_size_per_gpu 2 x "
                        "gradient_accumulation_steps 3 x "
                        "world 2 = 12"));
  EXPECT_THAT(error_of([] { infer_batch({.train = 16, .micro = 3}, 2); }),
              HasSubstr("train_batch_size 16 is not a multiple of train_micro_batch_size_per_gpu 3 "
                        "x world 2 = 6; set "
                        "train_batch_size to 18"));
  EXPECT_THAT(error_of([] { infer_batch({.train = 4}, 8); }), HasSubstr("x world 8 = 8"));
  EXPECT_THAT(error_of([] { infer_batch({.accumulation = 4}, 2); }),
              HasSubstr("(\"auto\" counts as not given); write a number for at least one of them"));
  EXPECT_THAT(refusal_with({"train_batch_size=null", "train_micro_batch_size_per_gpu=\"auto\""}),
              HasSubstr("c.json: neither train_batch_size nor train_micro_batch_size_per_gpu"));
}

TEST(TrainConfig, ThreadsComeFromTheMachineUnlessGiven) {
  const TrainConfig config = config_with({});
  EXPECT_GE(config.run.threads, 1);
  EXPECT_THAT(config.values.at("run.threads").source, ::testing::StartsWith("auto: "));
  EXPECT_EQ(config_with({"run.threads=3"}).run.threads, 3);
  EXPECT_EQ(config_with({"run.threads=3"}).values.at("run.threads").source, "--set");
}

TEST(TrainConfig, WhatIsInferredIsShown) {
  const TrainConfig config = config_with({"train_micro_batch_size_per_gpu=2"}, 2);
  EXPECT_EQ(config.batch, (Batch{8, 2, 2}));
  EXPECT_EQ(config.values.at("gradient_accumulation_steps").source, "inferred for world 2");
  EXPECT_EQ(config.data.sequence_length, 32);
  EXPECT_EQ(config.data.tokenizer, "bytes");
  EXPECT_EQ(config.tokens_per_step(), 256);
  EXPECT_TRUE(config.engine.overlap);
  EXPECT_EQ(config.engine.gradient_clipping, 1.0);
  EXPECT_EQ(config.engine.compute, DType::fp32);
}

TEST(TrainConfig, TheMeshLaysOutTheWorldAndTheBatchCountsDataParallelRanks) {
  const TrainConfig config = config_with({"mesh.tensor=2", "mesh.replicate=2"}, 8);
  EXPECT_EQ(config.mesh.shard, 2);
  EXPECT_EQ(config.values.at("mesh.shard").source, "inferred for world 8");
  EXPECT_EQ(config.data_ranks(), 4);
  EXPECT_EQ(config.batch, (Batch{8, 2, 1}));
  EXPECT_EQ(config_with({}, 8).mesh.shard, 8);
  EXPECT_FALSE(config.tensor.sequence_parallel);
  const TensorOptions tensor =
      config_with({"mesh.sequence_parallel=true", "mesh.chunks=5"}, 8).tensor;
  EXPECT_TRUE(tensor.sequence_parallel);
  EXPECT_EQ(tensor.chunks, 5);
  EXPECT_THAT(refusal_with({"mesh.chunks=0"}, 8),
              HasSubstr("mesh.chunks: found 0, expected a whole number from 1 to 1024"));
  EXPECT_EQ(config_with({"mesh.tensor=-1", "mesh.shard=2"}, 8).mesh.tensor, 4);
  EXPECT_THAT(refusal_with({"mesh.tensor=2", "mesh.shard=4"}),
              ::testing::EndsWith("with --plan or --print-config: --world 8"));
  EXPECT_THAT(refusal_with({"mesh.tensor=3"}, 8),
              AllOf(HasSubstr("c.json: mesh is 1 x -1 x 3"), HasSubstr("must divide 8")));
  EXPECT_THAT(refusal_with({"mesh.shard=2", "mesh.tensor=2"}, 8), HasSubstr("start 4 ranks"));
  EXPECT_THAT(refusal_with({"mesh.tensor=0"}, 8), HasSubstr("mesh.tensor is 0"));
  EXPECT_THAT(
      refusal_with({"mesh.tensor=8"}, 8),
      HasSubstr("c.json: mesh.tensor is 8: 4 heads of attention cannot be cut over 8 tensor "
                "ranks, each of which needs one; use at most 4 tensor ranks"));
  EXPECT_THAT(
      refusal_with({"mesh.tensor=2", "train_micro_batch_size_per_gpu=3"}, 8),
      HasSubstr("x world 4 = 12; set train_batch_size to 12 or change "
                "train_micro_batch_size_per_gpu or the number of ranks (world: the 8 ranks are 4 "
                "groups of mesh.tensor 2)"));
}

TEST(TrainConfig, TheDeviceIsTheMachinesUnlessItIsGiven) {
  const TrainConfig config = config_with({});
  const DeviceChoice choice = choose_device(device_facts(1, RanksAre::threads));
  EXPECT_EQ(config.run.device, choice.kind);
  EXPECT_EQ(config.values.at("run.device").source, choice.why);
  EXPECT_EQ(config_with({"run.device=cpu"}).run.device, DeviceKind::cpu);
  EXPECT_EQ(config_with({"run.device=cuda", "run.sums=fast"}).run.sums, nccl::Sums::fast);
  EXPECT_THAT(refusal_with({"run.device=gpu"}), HasSubstr("expected one of"));
  EXPECT_THAT(refusal_with({"run.device=cpu", "run.sums=fast"}),
              HasSubstr("c.json: run.sums \"fast\" is for GPUs, and run.device is \"cpu\""));
  EXPECT_TRUE(config_with({"run.device=cuda", "run.profile=true"}).run.profile);
  EXPECT_TRUE(config_with({}).engine.graphs);
  EXPECT_FALSE(config_with({"run.graphs=false"}).engine.graphs);
}

TEST(TrainConfig, RanksWaitAsLongAsTheConfigurationSays) {
  const WaitLimits usual = config_with({}).run.waits;
  EXPECT_EQ(usual.warning, std::chrono::seconds(30));
  EXPECT_EQ(usual.timeout, std::chrono::seconds(600));
  const WaitLimits given =
      config_with({"run.collective_warning=0.5", "run.collective_timeout=0"}).run.waits;
  EXPECT_EQ(given.warning, std::chrono::milliseconds(500));
  EXPECT_EQ(given.timeout, std::chrono::milliseconds(0));
  EXPECT_EQ(config_with({"run.collective_warning=0", "run.collective_timeout=5"})
                .run.waits.warning.count(),
            0);
  EXPECT_THAT(refusal_with({"run.collective_timeout=20"}),
              HasSubstr("c.json: run.collective_warning is 30 s, run.collective_timeout 20 s: the "
                        "job would end before the warning; give the warning the shorter time, or "
                        "0 for none"));
  EXPECT_THAT(refusal_with({"run.collective_warning=-1"}),
              HasSubstr("run.collective_warning: found -1"));
}

TEST(TrainConfig, RanksAreWatchedAsTheConfigurationSays) {
  EXPECT_TRUE(config_with({}).run.watchdog);
  EXPECT_EQ(config_with({}).run.hang_timeout, 0);
  EXPECT_FALSE(config_with({"run.watchdog=false"}).run.watchdog);
  EXPECT_TRUE(config_with({}).run.watchdog_hosts);
  EXPECT_FALSE(config_with({"run.watchdog_hosts=false"}).run.watchdog_hosts);
  EXPECT_THAT(refusal_with({"run.watchdog=false", "run.watchdog_hosts=true"}),
              HasSubstr("c.json: run.watchdog_hosts is given, but run.watchdog is false"));
  EXPECT_EQ(config_with({"run.hang_timeout=2.5"}).run.hang_timeout, 2.5);
  EXPECT_EQ(config_with({"run.hang_timeout=700", "run.collective_timeout=0"}).run.hang_timeout,
            700);
  EXPECT_THAT(refusal_with({"run.watchdog=false", "run.hang_timeout=5"}),
              HasSubstr("c.json: run.hang_timeout is given, but run.watchdog is false"));
  EXPECT_THAT(refusal_with({"run.hang_timeout=700"}),
              HasSubstr("c.json: run.hang_timeout is 700 s, run.collective_timeout 600 s: the job "
                        "would end before"));
  EXPECT_EQ(config_with({"run.hang_timeout=1"}).run.hang_timeout, 1);
  EXPECT_THAT(refusal_with({"run.hang_timeout=0.99"}),
              HasSubstr("c.json: run.hang_timeout is 0.99 s, expected at least 1 s, or 0 for the "
                        "usual time: the watchdog looks five times a second"));
  for (const char* const value : {"-1", "soon", "1e300"}) {
    EXPECT_THAT(refusal_with({std::string("run.hang_timeout=") + value}),
                AllOf(HasSubstr("run.hang_timeout: found "),
                      HasSubstr(", expected 0 (five mean steps, 3 s at least), or 1 to 1000000 "
                                "seconds; the default is 0")));
  }
  EXPECT_THAT(refusal_with({"run.collective_timeout=-1"}),
              HasSubstr("found -1, expected 0 (without end), or up to 1000000 seconds"));
}

TEST(TrainConfig, DeepSpeedsNamesOfTheMeshMeanTheSame) {
  EXPECT_EQ(config_with({"tensor_parallel.autotp_size=4"}, 8).mesh.tensor, 4);
  for (const char* key :
       {"zero_optimization.mics_shard_size=4", "zero_optimization.zero_hpz_partition_size=4"}) {
    const TrainConfig config = config_with({key}, 8);
    EXPECT_EQ(config.mesh.shard, 4);
    EXPECT_EQ(config.mesh.replicate, 2);
    EXPECT_EQ(config.data_ranks(), 8);
  }
  EXPECT_EQ(config_with({"tensor_parallel.autotp_size=2", "mesh.tensor=2"}, 8).mesh.tensor, 2);
  EXPECT_THAT(refusal_with({"tensor_parallel.autotp_size=4", "mesh.tensor=2"}, 8),
              HasSubstr("c.json: tensor_parallel.autotp_size is 4, but mesh.tensor is 2 (--set); "
                        "give one of the two"));
  EXPECT_THAT(refusal_with({"zero_optimization.mics_shard_size=4",
                            "zero_optimization.zero_hpz_partition_size=2"},
                           8),
              HasSubstr("but mesh.shard is 4 (zero_optimization.mics_shard_size)"));
}

TEST(MeshTable, ShowsWhereRanksAreAndWarnsOfTensorGroupsAcrossHosts) {
  EXPECT_EQ(mesh_table({1, 4, 1}, {"a", "a", "b", "b"}).text, "");
  const MeshTable apart = mesh_table({1, 2, 2}, {"a", "a", "b", "b"});
  EXPECT_EQ(apart.text,
            "mesh: replicate 1 x shard 2 x tensor 2\n"
            "  replicate   0  shard    0  ranks 0 1  on a\n"
            "  replicate   0  shard    1  ranks 2 3  on b");
  EXPECT_TRUE(apart.warnings.empty());
  const MeshTable across = mesh_table({1, 2, 2}, {"a", "b", "a", "b"});
  ASSERT_EQ(across.warnings.size(), 1U);
  EXPECT_THAT(across.warnings[0], AllOf(HasSubstr("ranks 0 to 1 is on 2 hosts (a, b)"),
                                        HasSubstr("(and 1 more groups)")));
  const MeshTable large = mesh_table({2, 16, 4}, std::vector<std::string>(128, "a"));
  EXPECT_THAT(large.text, HasSubstr("and 16 more tensor groups"));
}

TEST(TrainConfig, EngineOptionsFollowTheSections) {
  const TrainConfig config = config_with(
      {"zero_optimization.stage=3", "zero_optimization.stage3_prefetch_bucket_size=1e3",
       "zero_optimization.stage3_max_live_parameters=2e3", "zero_optimization.overlap_comm=false",
       "zero_optimization.stage3_param_persistence_threshold=7",
       "zero_optimization.stage3_max_reuse_distance=8", "zero_optimization.reduce_bucket_size=9",
       "bf16.enabled=true", "data_types.grad_accum_dtype=fp32", "gradient_clipping=0.5",
       "optimizer.params.lr=3e-4", "optimizer.params.betas=[0.9, 0.95]",
       "optimizer.params.weight_decay=0.1", "run.seed=17", "optimizer.type=Adam",
       "optimizer.params.adam_w_mode=false"});
  const EngineOptions& engine = config.engine;
  EXPECT_EQ(engine.stage, 3);
  EXPECT_EQ(engine.compute, DType::bf16);
  EXPECT_EQ(engine.gradient, DType::fp32);
  EXPECT_FALSE(engine.overlap);
  EXPECT_EQ(engine.limits.prefetch_elements, 1000);
  EXPECT_EQ(engine.limits.live_elements, 2000);
  EXPECT_EQ(engine.limits.persistence_threshold, 7);
  EXPECT_EQ(engine.limits.reuse_distance, 8);
  EXPECT_EQ(engine.limits.reduce_bucket_elements, 9);
  EXPECT_EQ(engine.gradient_clipping, 0.5);
  EXPECT_EQ(engine.seed, 17U);
  EXPECT_EQ(engine.optimizer.kind, OptimizerConfig::Kind::adam);
  EXPECT_EQ(engine.optimizer.beta2, 0.95);
  EXPECT_EQ(engine.optimizer.weight_decay, 0.1);
}

TEST(TrainConfig, LimitsOfStageThreeThatAreAbsentOrAutoFollowTheModel) {
  for (const std::vector<std::string>& given :
       {std::vector<std::string>{},
        std::vector<std::string>{"zero_optimization.stage3_prefetch_bucket_size=auto",
                                 "zero_optimization.stage3_max_live_parameters=auto",
                                 "zero_optimization.stage3_param_persistence_threshold=auto"},
        std::vector<std::string>{"zero_optimization.stage3_prefetch_bucket_size=null",
                                 "zero_optimization.stage3_max_live_parameters=null",
                                 "zero_optimization.stage3_param_persistence_threshold=null"}}) {
    const ScheduleLimits limits = config_with(given).engine.limits;
    EXPECT_EQ(limits.prefetch_elements, std::nullopt);
    EXPECT_EQ(limits.persistence_threshold, std::nullopt);
    EXPECT_EQ(limits.live_elements, std::nullopt);
    EXPECT_EQ(limits.reuse_distance, 0);
  }
}

TEST(TrainConfig, AdamMeansAdamWUnlessToldOtherwise) {
  EXPECT_EQ(config_with({"optimizer.type=Adam"}).engine.optimizer.kind,
            OptimizerConfig::Kind::adamw);
  EXPECT_EQ(
      config_with({"optimizer.type=SGD", "optimizer.params.momentum=0.9"}).engine.optimizer.kind,
      OptimizerConfig::Kind::sgd);
  EXPECT_THAT(refusal_with({"optimizer.params.adam_w_mode=false"}), HasSubstr("use type \"Adam\""));
}

TEST(TrainConfig, BiasesAndNormsAreNotDecayed) {
  const auto groups = config_with({"optimizer.params.weight_decay=0.1"}).engine.groups;
  const auto decay = [&](const char* name) { return settings_for(groups, name, 0.1).weight_decay; };
  EXPECT_EQ(decay("wte.weight"), 0.1);
  EXPECT_EQ(decay("wpe.weight"), 0.1);
  EXPECT_EQ(decay("h.0.attn.c_attn.weight"), 0.1);
  EXPECT_EQ(decay("h.0.attn.c_attn.bias"), 0.0);
  EXPECT_EQ(decay("h.11.ln_1.weight"), 0.0);
  EXPECT_EQ(decay("ln_f.weight"), 0.0);
  EXPECT_EQ(decay("ln_f.bias"), 0.0);
}

TEST(TrainConfig, ModelsHaveNames) {
  const auto layers = [](const TrainConfig& config) { return config.model.layers; };
  EXPECT_EQ(layers(config_with({"model=gpt2-350m"})), 24);
  EXPECT_EQ(layers(config_with({"model=gpt2-350m", "model.layers=3"})), 3);
  EXPECT_EQ(config_with({"model=gpt2-350m"}).values.at("model.width").source, "model gpt2-350m");
  EXPECT_THAT(refusal_with({"model=gpt3"}),
              AllOf(HasSubstr("found \"gpt3\""), HasSubstr("gpt2-124m")));
  EXPECT_THAT(
      error_of([] {
        make_train_config(
            Configuration::from_json(nlohmann::json{{"data", {{"train", "a"}}}}, "c.json", {}), 1);
      }),
      AllOf(HasSubstr("c.json: 2 refusals:\n  - model is missing; give a name"),
            HasSubstr("\n  - neither train_batch_size")));
}

TEST(TrainConfig, ThingsThatDoNotFitTogetherAreRefused) {
  EXPECT_THAT(refusal_with({"run.validation_every=5"}),
              HasSubstr("c.json: run.validation_every is 5, but data.validation is not given; name "
                        "its token shards"));
  EXPECT_EQ(config_with({"run.validation_every=5", "data.validation=v.bin"}).run.validation_every,
            5);
  EXPECT_THAT(refusal_with({"data.sequence_length=33"}),
              HasSubstr("data.sequence_length 33 is longer than model.context 32"));
  EXPECT_THAT(refusal_with({"reduction=boundary", "zero_optimization.stage=2"}),
              HasSubstr("found 2"));
  EXPECT_THAT(refusal_with({"vocabulary_size=300"}),
              HasSubstr("vocabulary_size is 300, model.vocabulary is 256"));
  EXPECT_THAT(refusal_with({"train_batch_size=9"}, 2),
              HasSubstr("c.json: train_batch_size 9 is not a multiple of"));
  EXPECT_THAT(refusal_with({"model.width=65"}), HasSubstr("c.json: model: "));
  EXPECT_THAT(refusal_with({"optimizer.type=SGD", "optimizer.params.momentum=1"}),
              HasSubstr("c.json: SGD: momentum is 1 (expected 0 or more, below 1)"));
  EXPECT_THAT(refusal_with({"scheduler.type=WarmupLR", "scheduler.params.warmup_num_steps=0"}),
              HasSubstr("warmup_num_steps: found 0, expected a whole number from 1"));
  EXPECT_THAT(refusal_with({"scheduler.type=cosine", "scheduler.params.warmup_num_steps=9",
                            "scheduler.params.total_num_steps=3"}),
              HasSubstr("c.json: scheduler: "));
}

TEST(LearningRates, WarmupIsDeepSpeedsLogarithmUnlessToldLinear) {
  const auto rates = config_with({"scheduler.type=WarmupLR", "optimizer.params.lr=0.5",
                                  "scheduler.params.warmup_num_steps=10"})
                         .learning_rates;
  EXPECT_EQ(rates.at(1), 0.0);
  EXPECT_EQ(rates.at(2), 0.0);
  EXPECT_DOUBLE_EQ(rates.at(3), 0.5 * std::log(2.0) / std::log(10.0));
  EXPECT_DOUBLE_EQ(rates.at(11), 0.5);
  EXPECT_DOUBLE_EQ(rates.at(12), 0.5);
  const auto linear =
      config_with({"scheduler.type=WarmupLR", "scheduler.params.warmup_max_lr=0.5",
                   "scheduler.params.warmup_min_lr=0.1", "scheduler.params.warmup_type=linear",
                   "scheduler.params.warmup_num_steps=10"})
          .learning_rates;
  EXPECT_DOUBLE_EQ(linear.at(1), 0.1);
  EXPECT_DOUBLE_EQ(linear.at(4), 0.1 + 0.4 * 0.2);
}

TEST(LearningRates, DecaysFollowDeepSpeed) {
  const auto decay =
      config_with({"scheduler.type=WarmupDecayLR", "scheduler.params.warmup_max_lr=1",
                   "scheduler.params.warmup_num_steps=10", "scheduler.params.total_num_steps=110"})
          .learning_rates;
  EXPECT_DOUBLE_EQ(decay.at(12), 1.0);
  EXPECT_DOUBLE_EQ(decay.at(62), 0.5);
  EXPECT_DOUBLE_EQ(decay.at(1000), 0.0);
  const auto cosine =
      config_with({"scheduler.type=WarmupCosineLR", "optimizer.params.lr=2",
                   "scheduler.params.warmup_num_steps=10", "scheduler.params.total_num_steps=110",
                   "scheduler.params.cos_min_ratio=0.1"})
          .learning_rates;
  EXPECT_DOUBLE_EQ(cosine.at(1), 0.0);
  EXPECT_NEAR(cosine.at(61), 2 * (0.1 + 0.9 * 0.5), 1e-12);
  EXPECT_NEAR(cosine.at(111), 0.2, 1e-12);
  EXPECT_NEAR(cosine.at(500), 0.2, 1e-12);
}

TEST(TrainConfig, TorchAutocastIsTheDtypeOfCompute) {
  for (const char* dtype : {"bfloat16", "bf16", "torch.bfloat16"}) {
    const TrainConfig config =
        config_with({"torch_autocast.enabled=true", std::string("torch_autocast.dtype=") + dtype});
    EXPECT_EQ(config.engine.compute, DType::bf16) << dtype;
    EXPECT_EQ(config.values.at("bf16.enabled").source, "torch_autocast.dtype");
    EXPECT_FALSE(config.loss_scale_rule) << dtype;
  }
  const TrainConfig half =
      config_with({"torch_autocast.enabled=true", "torch_autocast.dtype=float16"});
  EXPECT_EQ(half.engine.compute, DType::fp16);
  EXPECT_TRUE(half.loss_scale_rule);
  EXPECT_EQ(config_with({"torch_autocast.dtype=float16"}).engine.compute, DType::fp32);
  EXPECT_THAT(error_of([] { config_with({"torch_autocast.enabled=true"}); }),
              ::testing::EndsWith("set it to \"bfloat16\" or \"float16\": --set "
                                  "torch_autocast.dtype=bfloat16"));
  EXPECT_THAT(error_of([] {
                config_with({"torch_autocast.enabled=true", "torch_autocast.dtype=float16",
                             "bf16.enabled=true"});
              }),
              ::testing::HasSubstr("torch_autocast.dtype is \"float16\", but bf16.enabled is true; "
                                   "a run computes in one of them"));
}

TEST(LearningRates, OursAreNamedInSmallLetters) {
  EXPECT_EQ(config_with({"optimizer.params.lr=3e-4"}).learning_rates.at(50), 3e-4);
  const auto wsd = config_with({"scheduler.type=wsd", "run.steps=100", "optimizer.params.lr=1"});
  EXPECT_EQ(wsd.values.integer("scheduler.params.decay_num_steps"), 20);
  EXPECT_EQ(wsd.values.at("scheduler.params.total_num_steps").source, "run.steps");
  EXPECT_EQ(wsd.learning_rates.at(50), 1.0);
  EXPECT_NEAR(config_with({"scheduler.type=linear", "run.steps=100", "optimizer.params.lr=1"})
                  .learning_rates.at(100),
              0.0, 1e-6);
}

}  // namespace
}  // namespace zero::testing
