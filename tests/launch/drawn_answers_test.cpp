// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>

#include "collectives/backends.h"
#include "inference/generator.h"
#include "inference/inference_model.h"
#include "launch/generate/answer_models.h"
#include "launch/generate/answer_plan.h"
#include "launch/generate/answer_ranks.h"
#include "launch/generate/generate_flags.h"
#include "launch/plan/model_choice.h"
#include "launch/plan/written_config.h"
#include "tests/launch/drawn.h"
#include "tests/launch/tiny_run.h"
#include "tests/launch/train_rank.h"

// Answers that are drawn: the bytes of a plan by config.json alone, of zero_generate --plan, and of
// the ranks that answer.
namespace zero::testing {
namespace {

/// Saves the first weights of a run.
void save_weights(const TinyRun& run, const DecoderShape& model, const std::string& folder) {
  const TrainingQuestion question{
      .model = model,
      .sequence = 16,
      .machine = {.kind = DeviceKind::cpu, .memory = 4'000'000'000, .source = "drawn"},
      .data = {run.folder().path("train_000000.bin")}};
  const TrainConfig config = make_train_config(
      Configuration::from_json(written_configuration(question, {.compute = DType::fp32}),
                               "the drawn model",
                               {"run.steps=0", "run.threads=1", "run.save_weights=" + folder,
                                "run.log=" + run.folder().path("run.log")}),
      1);
  train_rank(config, *local::single(), *cpu::open());
}

/// Flags for requests of at most 40 tokens.
GenerateFlags drawn_flags(Draw& draw, const std::string& folder, int world) {
  GenerateFlags flags{.model = folder,
                      .device = "cpu",
                      .dtype = draw.one_of<std::string>({"fp32", "bf16", "fp16"}),
                      .weights = draw.one_of<std::string>({"dtype", "int8", "nf4", "q4"}),
                      .cache_dtype = draw.one_of<std::string>({"dtype", "dtype", "int8"}),
                      .requests = draw.number(1, 5),
                      .block_tokens = draw.one_of<std::int64_t>({16, 32, 48}),
                      .draft = draw.one_of<std::string>({"", "", "prompt", folder}),
                      .draft_tokens = draw.number(1, 4),
                      .threads = "1"};
  if (flags.weights != "dtype" && draw.once_in(3)) flags.keep.add(MatrixRole::head);
  if (draw.once_in(3)) flags.cache_tokens = draw.number(40, 400);
  if (draw.once_in(3)) flags.memory_limit = std::int64_t{1} << 30;
  if (draw.once_in(3)) flags.host_cache_tokens = draw.number(1, 200);
  if (world % 2 == 0) flags.tensor = static_cast<int>(draw.number(1, 2));
  const int groups = world / flags.tensor;
  if (draw.once_in(3)) flags.replicate = groups;
  if (flags.replicate < groups && draw.once_in(2)) flags.windows = draw.number(1, 3);
  return flags;
}

std::vector<GenerationRequest> drawn_requests(Draw& draw, std::int64_t vocabulary) {
  std::vector<GenerationRequest> all(static_cast<std::size_t>(draw.number(1, 9)));
  for (GenerationRequest& each : all) {
    each.prompt.resize(static_cast<std::size_t>(draw.number(1, 20)));
    for (std::uint32_t& id : each.prompt) {
      id = static_cast<std::uint32_t>(draw.number(0, vocabulary - 1));
    }
    each.max_tokens = draw.number(1, 20);
  }
  return all;
}

AnswerPlan plan_of(const GenerateFlags& flags, const std::string& folder,
                   const std::vector<GenerationRequest>& requests, int world) {
  AnswerNeeds needs{.flags = flags, .folder = folder, .world = world, .tell = [](const auto&) {}};
  for (const GenerationRequest& each : requests) {
    needs.requests.push_back({std::ssize(each.prompt), each.max_tokens, each.priority});
  }
  return plan_answers(needs);
}

/// The peaks of a rank that has answered its part of the requests.
MemorySnapshot answered(Communicator& world, const GenerateFlags& flags,
                        const std::vector<GenerationRequest>& requests) {
  const auto device = cpu::open({.threads = 1});
  AnswerRanks ranks(world, device.get(), flags.replicate, flags.tensor);
  const AnswerPlan plan = plan_of(flags, flags.model, requests, world.size());
  AnswerModels models({.flags = flags,
                       .folder = flags.model,
                       .plan = plan,
                       .ranks = ranks,
                       .device = device.get(),
                       .say = [](const std::string&) {}});
  Generator& generator = models.generator();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!ranks.computes(i)) continue;
    generator.submit(requests[i], {.on_token = [](const auto&) { return Flow::more; },
                                   .on_end =
                                       [](const GenerationEnd& end) {
                                         EXPECT_EQ(end.reason, FinishReason::length) << end.error;
                                       }});
  }
  while (ranks.any(!generator.idle())) {
    if (!generator.step() && ranks.count() > 1) models.model().forward({});
  }
  return device->ledger().snapshot();
}

/// Bytes as a snapshot has them: parameters, gathered, activations, all other classes.
using Bytes = std::array<std::int64_t, 4>;

Bytes bytes_of(const InferenceMemory& memory) {
  return {memory.weights, memory.windows, memory.cache + memory.host_cache + memory.activations,
          memory.exchange};
}

Bytes bytes_of(const MemorySnapshot& memory) {
  using enum MemoryClass;
  Bytes bytes{memory.peak_of(parameters), memory.peak_of(gathered), memory.peak_of(activations)};
  for (const MemoryClass c : all_memory_classes()) {
    if (c != parameters && c != gathered && c != activations) bytes[3] += memory.peak_of(c);
  }
  return bytes;
}

TEST(DrawnAnswers, TakeTheBytesOfEveryPlan) {
  Draw draw;
  for (int i = 0; i < 30; ++i) {
    const TinyRun run;
    const std::string folder = run.folder().path("model/");
    const DecoderShape model = drawn_model(draw);
    save_weights(run, model, folder);
    const std::string config_alone = run.folder().path("config/");
    std::filesystem::create_directory(config_alone);
    std::filesystem::copy(folder + "config.json", config_alone);
    const int world = draw.one_of<int>({1, 1, 2, 3, 4});
    GenerateFlags flags = drawn_flags(draw, folder, world);
    const std::vector<GenerationRequest> requests = drawn_requests(draw, model.vocabulary);
    SCOPED_TRACE(fmt::format("seed {}, answers {}: {} ranks", draw.seed(), i, world));

    flags.plan = true;
    const AnswerPlan printed = plan_of(flags, config_alone, requests, world);  // --plan
    flags.plan = false;
    std::vector<MemorySnapshot> ran(static_cast<std::size_t>(world));
    local::run(world, [&](Communicator& of) {
      ran[static_cast<std::size_t>(of.rank())] = answered(of, flags, requests);
    });
    const MeshShape& shape = printed.ranks.shape;
    for (int rank = 0; rank < world; ++rank) {
      SCOPED_TRACE(
          fmt::format("rank {} of {} x {} x {}", rank, shape.replicate, shape.shard, shape.tensor));
      Bytes planned =
          bytes_of(plan_inference_memory(model_of(config_alone), printed.options, printed.ranks,
                                         rank % (shape.shard * shape.tensor)));
      if (rank == 0) {
        EXPECT_EQ(planned, bytes_of(printed.memory));
      }
      if (!printed.draft_folder.empty()) {
        const Bytes draft = bytes_of(printed.draft);
        std::ranges::transform(planned, draft, planned.begin(), std::plus());
      }
      EXPECT_EQ(planned, bytes_of(ran[static_cast<std::size_t>(rank)]));
    }
  }
}

}  // namespace
}  // namespace zero::testing
