// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/plan/explain.h"
#include "launch/plan/model_choice.h"
#include "launch/plan/training_answer.h"
#include "launch/process/command_line.h"
#include "launch/process/process.h"
#include "launch/process/quantity.h"
#include "launch/telemetry/output.h"

namespace {

constexpr int kMisfit = 1;   // nothing fits
constexpr int kTrouble = 2;  // the question could not be answered

/// What every question has: a model, a machine, the form of the answer.
struct SharedFlags {
  std::string model{};
  std::string gpus{};
  std::string memory{};
  std::string reserve{};
  std::string cluster{};
  std::string machine{};
  int ranks = 0;
  bool json = false;
};

/// What is asked about training.
struct TrainFlags {
  std::int64_t sequence = 0;
  zero::CandidateAxes axes{};
  std::int64_t batch = 0;
  std::vector<std::string> recomputes{};
  std::vector<std::string> moments{};
  std::vector<std::string> dtypes{};
  std::string compute{};
  std::vector<std::string> data{};
  int top = 6;
  std::optional<std::string> write{};
};

struct Flags {
  SharedFlags shared{};
  TrainFlags train{};
  bool explain = false;
  zero::ExplainQuestion figures{};
};

void add_shared(CLI::App& app, SharedFlags& flags) {
  app.add_option("--model", flags.model,
                 "a published name (7b, llama-7b, llama-3.1-70b, gpt2-124m, ...), sizes "
                 "(family=llama,layers=32,width=4096,...), or a Hugging Face config.json");
  app.add_option("--gpus", flags.gpus, "GPUs of one host (8), or hosts x GPUs of a host (2x8)");
  app.add_option("--memory", flags.memory,
                 "of one GPU, with its unit: 80GB (10^9) or 80GiB (2^30)");
  app.add_option("--reserve", flags.reserve,
                 "of that, kept free for what no plan knows: CUDA's context, its libraries, NCCL");
  app.add_option(
      "--cluster", flags.cluster,
      "a JSON file in place of --gpus: {\"hosts\": 2, \"devices\": 8, \"kind\": \"gpu\", "
      "\"memory\": \"80GB\", \"reserve\": \"2GiB\", \"compute\": \"400TFLOP/s\", "
      "\"links\": {\"within_host\": \"300GB/s\", \"between_hosts\": \"40GB/s\"}}");
  app.add_option("--machine", flags.machine, "this: the GPUs of this machine, or its CPU")
      ->check(CLI::IsMember({"this"}));
  app.add_option("--ranks", flags.ranks, "with --machine this: that many ranks on the CPU")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--json", flags.json, "as JSON");
}

void add_training(CLI::App& app, TrainFlags& flags) {
  zero::CandidateAxes& axes = flags.axes;
  const auto list = [&](const char* name, auto& values, const char* help) {
    return app.add_option(name, values, help)->delimiter(',');
  };
  const auto from_one = CLI::Range(std::int64_t{1}, std::int64_t{1} << 24);
  app.add_option("--sequence", flags.sequence,
                 "tokens of a sequence; default: the model's context, 8192 at most")
      ->check(from_one);
  CLI::Option* const batch =
      app.add_option("--batch", flags.batch,
                     "sequences of a step in all; accumulation follows from it, 65536 at most")
          ->check(from_one);
  list("--stage", axes.stages, "of 0,1,2,3 (all)")->check(CLI::Range(0, 3));
  list("--micro", axes.micros, "micro-batches of a rank (32,16,8,4,2,1)")
      ->check(CLI::Range(std::int64_t{1}, zero::kMostMicro));
  list("--accumulation", axes.accumulations, "micro-batches of a step (1)")
      ->check(CLI::Range(std::int64_t{1}, zero::kMostAccumulation))
      ->excludes(batch);
  list("--recompute", flags.recomputes,
       "of none,selective,full,groups,interval=N,groups=N (none, selective, full, intervals 2 and "
       "4, groups)");
  list("--moments", flags.moments, "of fp32,bf16,8bit (all)")
      ->check(CLI::IsMember({"fp32", "bf16", "8bit"}));
  list("--dtype", flags.dtypes, "of bf16,fp16,fp32 (bf16,fp32)")
      ->check(CLI::IsMember({"bf16", "fp16", "fp32"}));
  list("--tensor", axes.tensors, "ranks of the tensor axis (all that fit a host)")
      ->check(CLI::Range(1, 1024));
  list("--shard", axes.shards, "ranks of the shard axis, which has the data ranks of stage 0 (all)")
      ->check(CLI::Range(1, zero::Machine::kMostInAll));
  app.add_option("--compute", flags.compute,
                 "FLOP/s that products reach on one device, as 400TFLOP/s; with links of a "
                 "--cluster FILE rows are ordered by time");
  app.add_option("--top", flags.top, "rows that are planned and shown")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  app.add_option("--write", flags.write,
                 "write the configuration of the first row to this file, of row 2 beside it with "
                 "-2 in its name, ...; for zero_train");
  list("--data", flags.data, "token files that written configurations name");
}

void add_flags(CLI::App& app, Flags& flags) {
  add_shared(app, flags.shared);
  add_training(app, flags.train);
  CLI::Option* const explain = app.add_flag(
      "--explain", flags.explain, "estimates that introductions quote, and what each leaves out");
  app.add_option("--parameters", flags.figures.parameters,
                 "with --explain: for the table of stages")
      ->needs(explain)
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 50));
  app.add_option("--over", flags.figures.ranks, "with --explain: ranks for the table of stages")
      ->needs(explain)
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  app.set_version_flag("--version", [] { return zero::version_text(); });
}

zero::Machine machine_of(const SharedFlags& flags) {
  const int given = (flags.gpus.empty() ? 0 : 1) + (flags.cluster.empty() ? 0 : 1) +
                    (flags.machine.empty() ? 0 : 1);
  ZERO_CHECK(given == 1,
             "{} of --gpus, --cluster and --machine are given, expected one: for example --gpus 8 "
             "--memory 80GB",
             given);
  ZERO_CHECK(flags.gpus.empty() == flags.memory.empty(),
             "--gpus and --memory belong together; give both, for example --gpus 8 --memory 80GB");
  ZERO_CHECK(flags.ranks == 0 || !flags.machine.empty(),
             "--ranks {} is given without --machine this; add it, or use --gpus", flags.ranks);
  zero::Machine machine;
  if (!flags.cluster.empty()) {
    machine = zero::read_cluster(flags.cluster);
  } else if (!flags.machine.empty()) {
    machine = zero::this_machine(flags.ranks);
  } else {
    zero::take_gpus(machine, flags.gpus, "--gpus");
    machine.memory = zero::bytes_with_unit(flags.memory, "--memory");
  }
  if (!flags.reserve.empty()) {
    machine.reserve = zero::bytes_with_unit(flags.reserve, "--reserve");
    machine.source = "--reserve";
  }
  return machine;
}

zero::TrainingQuestion question_of(const Flags& flags) {
  const TrainFlags& train = flags.train;
  ZERO_CHECK(!flags.shared.model.empty(),
             "--model is missing; give a name (--model 7b), sizes or a config.json");
  zero::TrainingQuestion question{.model = zero::model_of(flags.shared.model),
                                  .model_text = flags.shared.model,
                                  .machine = machine_of(flags.shared),
                                  .axes = train.axes,
                                  .data = train.data};
  constexpr std::int64_t kUsualSequence = 8192;
  question.sequence =
      train.sequence > 0 ? train.sequence : std::min(question.model.context, kUsualSequence);
  ZERO_CHECK(question.sequence <= question.model.context,
             "--sequence is {}, expected at most the model's context of {}", question.sequence,
             question.model.context);
  zero::CandidateAxes& axes = question.axes;
  if (train.batch > 0) axes.batch = train.batch;
  for (const std::string& text : train.recomputes) {
    axes.recomputes.push_back(
        zero::RecomputeChoice::from(text, question.model.layers, "--recompute"));
  }
  if (!train.moments.empty()) axes.moments.clear();
  for (const std::string& text : train.moments) {
    axes.moments.push_back(zero::moment_format_from_name(text));
  }
  if (!train.dtypes.empty()) axes.computes.clear();
  for (const std::string& text : train.dtypes) {
    axes.computes.push_back(zero::dtype_from_name(text));
  }
  if (!train.compute.empty()) {
    question.machine.compute = zero::compute_rate(train.compute, "--compute");
  }
  return question;
}

/// With one line of progress on a terminal.
zero::TrainingAnswer answer_with_progress(const zero::TrainingQuestion& question, int top) {
  using Mode = zero::Console::Mode;
  zero::Console console(stderr, ::isatty(STDERR_FILENO) != 0 ? Mode::terminal : Mode::silent);
  zero::TrainingAnswer found = zero::answer_training(
      question, top, [&](const std::string& step) { console.refresh("zero_plan: " + step); });
  console.end_progress();
  return found;
}

int answer(const Flags& flags) {
  if (flags.explain) {
    ZERO_CHECK(flags.shared.model.empty(), "--explain and --model are both given; give one");
    zero::print(flags.shared.json ? zero::explained_json(flags.figures).dump(2) + "\n"
                                  : zero::explained(flags.figures));
    return 0;
  }
  const zero::TrainingQuestion question = question_of(flags);
  const std::optional<std::string>& write = flags.train.write;
  if (write) zero::check_written(*write, flags.train.top);
  zero::TrainingAnswer found = answer_with_progress(question, flags.train.top);
  if (write) zero::write_rows(found, *write);
  zero::print(flags.shared.json ? zero::json_of(found).dump(2) + "\n"
                                : zero::printable_text(zero::text_of(found)));
  return found.rows.empty() ? kMisfit : 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Says how a model can be trained on a machine, and what each way takes: memory by the "
      "engine's own plan, bytes sent, FLOP. Nothing is trained or allocated; no GPU is needed.\n"
      "  zero_plan --model 7b --gpus 8 --memory 80GB\n"
      "  zero_plan --model config.json --gpus 2x8 --memory 80GB --batch 512 --write run.json\n"
      "Status: 0; 1 if no way fits; 2 if the question could not be answered.",
      "zero_plan"};
  Flags flags;
  add_flags(app, flags);
  return zero::run_program(app, argc, argv, {.trouble = kTrouble}, [&] { return answer(flags); });
}
