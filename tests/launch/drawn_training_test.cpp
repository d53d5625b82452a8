// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "collectives/backends.h"
#include "launch/plan/closed_forms.h"
#include "launch/plan/exact_plan.h"
#include "launch/plan/written_config.h"
#include "launch/train/plan.h"
#include "tests/launch/drawn.h"
#include "tests/launch/tiny_run.h"
#include "tests/launch/train_rank.h"

// Runs that are drawn: the bytes of zero_plan, of zero_train --plan, and of the run.
namespace zero::testing {
namespace {

TrainingQuestion drawn_question(Draw& draw, const std::string& data) {
  TrainingQuestion question{.model = drawn_model(draw),
                            .sequence = draw.number(1, 64),
                            .machine = {.devices = draw.one_of<int>({1, 2, 3, 4, 4}),
                                        .kind = DeviceKind::cpu,
                                        .memory = 4'000'000'000,
                                        .source = "drawn"},
                            .data = {data}};
  question.axes.micros = {1, 2, 3};
  question.axes.accumulations = {1, 2, 3, 4};
  question.axes.computes = {DType::fp32, DType::bf16, DType::fp16};
  question.axes.offloads = {{}, {Tier::file}, {Tier::file, Tier::file}, {Tier::device, Tier::file}};
  return question;
}

/// Keys beside those of a candidate, which the closed forms know too.
std::vector<std::string> drawn_keys(Draw& draw, const TinyRun& run) {
  std::vector<std::string> keys{"run.steps=2", "run.threads=1",
                                "run.log=" + run.folder().path("run.log")};
  if (draw.once_in(2)) keys.push_back("data.validation=" + run.folder().path("validation.bin"));
  for (const char* const key :
       {"reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold",
        "stage3_max_live_parameters", "stage3_max_reuse_distance"}) {
    if (draw.once_in(5)) {
      keys.push_back(fmt::format("zero_optimization.{}={}", key, draw.number(0, 50'000)));
    }
  }
  if (draw.once_in(4)) keys.push_back("activation_checkpointing.keep_outputs=true");
  if (draw.once_in(4)) keys.push_back(fmt::format("mesh.chunks={}", draw.number(1, 3)));
  return keys;
}

/// Keys that no row of zero_plan has, and that its closed forms do not know; often none.
std::vector<std::string> drawn_foreign_keys(Draw& draw, const TinyRun& run, int stage) {
  if (!draw.once_in(3)) return {};
  std::vector<std::string> one{
      "data_types.grad_accum_dtype=fp32",
      "optimizer.type=SGD",
      "activation_checkpointing.partition_activations=true",
      "run.checkpoint.folder=" + run.folder().path("checkpoints"),
      "run.memory_trace=" + run.folder().path("run.memory"),
      "run.save_weights=" + run.folder().path("weights/"),
      "mesh.check_every=1",
      "zero_optimization.overlap_comm=false",
      "gradient_clipping=0",
  };
  if (stage < 2) one.emplace_back("reduction=boundary");
  const std::string key = draw.one_of(one);
  if (key == "optimizer.type=SGD") return {key, "optimizer.params.momentum=0.9"};
  return {key};
}

/// Keys of values in a file.
void add_file_keys(Draw& draw, const TinyRun& run, const Candidate& candidate,
                   std::vector<std::string>& keys) {
  for (const char* const section : {"offload_optimizer", "offload_param"}) {
    keys.push_back(fmt::format("zero_optimization.{}.nvme_path={}", section, run.folder().path()));
  }
  for (const std::string& key : drawn_tier_keys(draw, candidate)) keys.push_back(key);
}

/// What differs between closed forms and a plan.
std::string by_class(const MemoryUse& closed, const MemoryUse& planned) {
  std::string text;
  for (const MemoryClass c : all_memory_classes()) {
    const std::int64_t bytes = at(closed.ledger, c);
    if (bytes == at(planned.ledger, c)) continue;
    text += fmt::format("{}: {} bytes, planned {}\n", name_of(c), bytes, at(planned.ledger, c));
  }
  return text;
}

TEST(DrawnTraining, TakesTheBytesOfEveryPlan) {
  Draw draw;
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < 8000; ++i) tokens.push_back(i * i % 251);
  double worst = 0;
  for (int i = 0; i < 30; ++i) {
    const TinyRun run;
    const std::string data = write_tokens(run.folder(), "tokens.bin", tokens);
    const TrainingQuestion question = drawn_question(draw, data);
    const Candidate candidate = draw.one_of(candidates(question));
    std::vector<std::string> keys = drawn_keys(draw, run);
    if (candidate.offload.uses(Tier::file)) add_file_keys(draw, run, candidate, keys);
    const std::vector<std::string> foreign = drawn_foreign_keys(draw, run, candidate.stage);
    keys.insert(keys.end(), foreign.begin(), foreign.end());
    const auto file = written_configuration(question, candidate);
    SCOPED_TRACE(fmt::format("seed {}, run {}, {} ranks: {} {}", draw.seed(), i,
                             question.machine.world(), file.dump(), fmt::join(keys, " ")));
    const TrainConfig config = make_train_config(
        Configuration::from_json(file, "the drawn configuration", keys), question.machine.world());

    const ExactPlan exact = exact_plan(config, question.machine.backend());  // zero_plan's row
    const Plan plan = make_plan(config, BackendKind::local);                 // --plan
    EXPECT_EQ(exact.memory, plan.memory);
    local::run(config.world, [&](Communicator& world) {
      train_rank(config, world, *cpu::open({.threads = config.run.threads}));
    });
    const nlohmann::json last = run.log().back();
    EXPECT_EQ(last["plan_exact"], true) << "on each rank";
    for (const MemoryClass c : all_memory_classes()) {
      const std::string name(name_of(c));
      EXPECT_EQ(at(plan.memory.ledger, c), last["memory"][name]["peak"]) << name;
    }
    EXPECT_EQ(last["file"]["used"], plan.json()["file"]);

    if (!foreign.empty()) continue;
    ClosedForms forms(config, question.machine);
    const MemoryUse closed = forms.memory(candidate);
    const auto bytes = static_cast<double>(sum_of(plan.memory.ledger));
    const double off = std::abs(static_cast<double>(sum_of(closed.ledger)) / bytes - 1);
    EXPECT_LE(off, 0.01) << by_class(closed, plan.memory);
    worst = std::max(worst, off);
  }
  fmt::print("closed forms are off by {:.2f} % at most\n", 100 * worst);
}

}  // namespace
}  // namespace zero::testing
