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
#include "launch/plan/inference_answer.h"
#include "launch/plan/model_choice.h"
#include "launch/plan/training_answer.h"
#include "launch/plan/written_config.h"
#include "launch/process/command_line.h"
#include "launch/process/exit_status.h"
#include "launch/process/quantity.h"
#include "launch/telemetry/output.h"

namespace {

struct Flags {
  std::string model{};
  std::string gpus{};
  std::string memory{};
  std::string reserve{};
  std::string host_memory{};
  std::string cluster{};
  std::string machine{};
  int ranks = 0;
  bool json = false;
  std::vector<zero::DType> dtypes{};
  zero::TrainingQuestion training{};
  std::vector<std::string> recomputes{};
  std::string compute{};
  int top = 6;
  std::optional<std::string> write{};
  bool asks_inference = false;
  zero::InferenceQuestion inference{};
  bool explain = false;
  zero::ExplainQuestion figures{};
};

/// The options of one kind of question.
class Group {
 public:
  Group(CLI::App& app, std::string name) : app_(app), name_(std::move(name)) {}

  template <typename Value>
  CLI::Option* one(const char* flag, Value& value, const std::string& help) {
    return app_.add_option(flag, value, help)->group(name_);
  }
  template <typename Value>
  CLI::Option* list(const char* flag, std::vector<Value>& values, const std::string& help) {
    return one(flag, values, help)->delimiter(',');
  }
  /// A list of the names `known`, each as `parse` makes it.
  template <typename Value, typename Parse>
  void names(const char* flag, std::vector<Value>& values, const Parse& parse,
             const std::vector<std::string>& known, const std::string& help) {
    const auto take = [&values, parse](const std::vector<std::string>& texts) {
      values.clear();
      for (const std::string& text : texts) values.push_back(parse(text));
    };
    app_.add_option_function<std::vector<std::string>>(flag, take, help)
        ->delimiter(',')
        ->check(CLI::IsMember(known))
        ->group(name_);
  }
  template <typename Then>
  void for_each(const Then& then) const {
    for (CLI::Option* const option : app_.get_options()) {
      if (option->get_group() == name_) then(option);
    }
  }

 private:
  CLI::App& app_;
  std::string name_;
};

void add_shared(CLI::App& app, Flags& flags) {
  Group shared(app, "Model, machine, answer");
  shared.one("--model", flags.model,
             "a published name (7b, llama-7b, llama-3.1-70b, gpt2-124m, ...), sizes "
             "(family=llama,layers=32,width=4096,...), or a Hugging Face config.json");
  shared.one("--gpus", flags.gpus, "GPUs of one host (8), or hosts x GPUs of a host (2x8)");
  shared.one("--memory", flags.memory,
             "of one GPU, with its unit: what zero_memory says is free while it is idle, as "
             "79.1GiB; what a card is sold with is not that: 80GB is safe for an H100 of 80 GB, "
             "which has 85.5GB in all (docs/plan.md)");
  shared.one("--reserve", flags.reserve,
             "of that, kept free for what no plan knows: CUDA's context, its libraries, kernels "
             "and graphs, NCCL; 0B: nothing. Default: of each GPU 1GiB if it is the only one, 2GiB "
             "if there are several; of CPUs nothing");
  shared.one(
      "--cluster", flags.cluster,
      "a JSON file in place of --gpus: {\"hosts\": 2, \"devices\": 8, \"kind\": \"gpu\", "
      "\"memory\": \"80GB\", \"reserve\": \"2GiB\", \"host_memory\": \"1.5TiB\", \"compute\": "
      "\"400TFLOP/s\", \"links\": {\"within_host\": \"300GB/s\", \"between_hosts\": \"40GB/s\"}}");
  shared
      .one("--machine", flags.machine,
           "this: the GPUs of this machine, by the least that is free on any, or its CPU, by what "
           "is available")
      ->check(CLI::IsMember({"this"}));
  shared.one("--ranks", flags.ranks, "with --machine this: that many ranks on the CPU")
      ->check(CLI::Range(1, 1024));
  shared.names("--dtype", flags.dtypes, zero::dtype_from_name, {"bf16", "fp16", "fp32"},
               "of bf16,fp16,fp32 (training: bf16,fp32; inference: all, and bf16 beside codes)");
  shared.list("--tensor", flags.training.axes.tensors, "ranks of the tensor axis (all that fit)")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--json", flags.json, "as JSON")->group("Model, machine, answer");
}

void add_training(CLI::App& app, Flags& flags) {
  Group training(app, "Training");
  zero::CandidateAxes& axes = flags.training.axes;
  const auto from_one = CLI::Range(std::int64_t{1}, std::int64_t{1} << 24);
  training
      .one("--sequence", flags.training.sequence,
           "tokens of a sequence; default: the model's context, 8192 at most")
      ->check(from_one);
  CLI::Option* const batch =
      training
          .one("--batch", axes.batch,
               "sequences of a step in all; accumulation follows from it, 65536 at most")
          ->check(from_one);
  training.list("--stage", axes.stages, "of 0,1,2,3 (all)")->check(CLI::Range(0, 3));
  training.list("--micro", axes.micros, "sequences of a rank's micro-batch (32,16,8,4,2,1)")
      ->check(CLI::Range(std::int64_t{1}, zero::kMostMicro));
  training.list("--accumulation", axes.accumulations, "micro-batches of a step (1)")
      ->check(CLI::Range(std::int64_t{1}, zero::kMostAccumulation))
      ->excludes(batch);
  training.list("--recompute", flags.recomputes,
                "of none,selective,full,groups,interval=N,groups=N (none, selective, full, "
                "intervals 2 and 4, groups)");
  training.names("--moments", axes.moments, zero::moment_format_from_name, {"fp32", "bf16", "8bit"},
                 "of fp32,bf16,8bit (all)");
  training.names("--offload", axes.offloads, zero::Offload::from, zero::kOffloads,
                 "what is below the device's memory: of none, cpu (of GPUs: optimizer states, in "
                 "pinned host memory), cpu-all (these, and parameters at stage 3), nvme and "
                 "nvme-all (the same in files) (none)");
  training.names("--kept-inputs", axes.kept_inputs, zero::kept_input_place_from, {"device", "host"},
                 "of GPUs: inputs of blocks that are computed again whole are in the device's "
                 "memory, or in pinned host memory: of device,host (device)");
  training.one("--host-memory", flags.host_memory,
               "of one host of GPUs, with its unit: what all ranks there may pin; default: of "
               "--machine this what is available, less a sixteenth; else it limits no row");
  training
      .list("--shard", axes.shards,
            "ranks along the shard axis (all); at stage 0 this is the number of data ranks")
      ->check(CLI::Range(1, zero::Machine::kMostInAll));
  training.one("--compute", flags.compute,
               "FLOP/s that products reach on one device, as 400TFLOP/s; with links of a --cluster "
               "FILE rows are ordered by time");
  training.one("--top", flags.top, "rows that are planned and shown")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  training.one("--write", flags.write,
               "write the configuration of the first row to this file, of row 2 beside it with -2 "
               "in its name, ...; for zero_train");
  training.list("--data", flags.training.data, "token files that written configurations name");
}

void add_inference(CLI::App& app, Flags& flags) {
  Group inference(app, "Inference");
  zero::GenerateFlags& common = flags.inference.flags;
  inference.one("--requests", common.requests, "answered at once, by a GPU or a tensor group")
      ->check(CLI::Range(std::int64_t{1}, zero::InferenceOptions::kMostRows))
      ->capture_default_str();
  inference.list("--tokens", flags.inference.tokens,
                 "of a request with its answer; several lengths are taken in turn; default: the "
                 "model's context, 8192 at most");
  inference.list("--weights", flags.inference.weights, "of dtype,int8,nf4,q4 (all)")
      ->check(CLI::IsMember({"dtype", "int8", "nf4", "q4"}));
  inference.one("--cache-dtype", common.cache_dtype, "of keys and values: dtype, or int8")
      ->check(CLI::IsMember({"dtype", "int8"}))
      ->capture_default_str();
  inference.one("--block-tokens", common.block_tokens, "of a block of the cache, a multiple of 16")
      ->capture_default_str();
  inference.one("--offload-weights", common.offload.folder,
                "of CPUs: a rank's part of the blocks' weights is in a file in this folder, which "
                "need not be there; its bytes stand beside memory");
  app.add_option_function<std::string>(
         "--keep",
         [&common](const std::string& names) { common.keep = zero::parse_kept_matrices(names); },
         "matrices that stay in dtype beside codes, as head,embedding")
      ->group("Inference");
  inference
      .one("--threads", flags.inference.threads,
           "of a CPU's rank, for its scratch (this machine's share; 1 of a cluster file)")
      ->check(CLI::Range(1, 1024));
  CLI::Option* const asked =
      app.add_flag("--inference", flags.asks_inference,
                   "plan answers of zero_generate instead: weights x tensor ranks x sharding");
  inference.for_each([&](CLI::Option* option) { option->needs(asked); });
  asked->group("Inference");
  Group(app, "Training").for_each([&](CLI::Option* option) { option->excludes(asked); });
}

void add_explain(CLI::App& app, Flags& flags) {
  CLI::Option* const explain =
      app.add_flag("--explain", flags.explain,
                   "estimates that introductions quote, and what each leaves out")
          ->excludes("--inference", "--json", "--model");
  app.add_option("--parameters", flags.figures.parameters,
                 "with --explain: for the table of stages")
      ->needs(explain)
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 50));
  app.add_option("--over", flags.figures.ranks, "with --explain: ranks for the table of stages")
      ->needs(explain)
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
}

zero::Machine machine_of(const Flags& flags) {
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
    machine = zero::read_cluster(flags.cluster, "--cluster");
  } else if (!flags.machine.empty()) {
    machine = zero::this_machine(flags.ranks);
  } else {
    zero::take_gpus(machine, flags.gpus, "--gpus");
    machine.memory = zero::bytes_with_unit(flags.memory, "--memory");
    machine.reserve = zero::usual_reserve(machine);
  }
  if (!flags.reserve.empty()) {
    machine.reserve = zero::bytes_or_none(flags.reserve, "--reserve");
    machine.source = "--reserve";
  }
  if (!flags.host_memory.empty()) {
    machine.host_memory = zero::bytes_with_unit(flags.host_memory, "--host-memory");
    machine.source = "--host-memory";
  }
  if (!flags.compute.empty()) machine.compute = zero::compute_rate(flags.compute, "--compute");
  return machine;
}

/// Tokens of a sequence or request unless it is said how many.
std::int64_t usual_tokens(const zero::DecoderShape& model) {
  return std::min(model.context, zero::GenerateFlags::kUsualContext);
}

zero::TrainingQuestion training_question(const Flags& flags) {
  zero::TrainingQuestion question = flags.training;
  question.model = zero::model_of(flags.model);
  question.model_text = flags.model;
  question.machine = machine_of(flags);
  if (question.sequence == 0) question.sequence = usual_tokens(question.model);
  ZERO_CHECK(question.sequence <= question.model.context,
             "--sequence is {}, expected at most the model's context of {}", question.sequence,
             question.model.context);
  for (const std::string& text : flags.recomputes) {
    question.axes.recomputes.push_back(
        zero::RecomputeChoice::from(text, question.model.layers, "--recompute"));
  }
  if (!flags.dtypes.empty()) question.axes.computes = flags.dtypes;
  return question;
}

zero::InferenceQuestion inference_question(const Flags& flags) {
  zero::InferenceQuestion question = flags.inference;
  question.model = zero::model_of(flags.model, zero::ModelCodes::read);
  question.model_text = flags.model;
  question.folder = zero::model_folder_of(flags.model);
  question.machine = machine_of(flags);
  question.dtypes = flags.dtypes;
  question.tensors = flags.training.axes.tensors;
  if (question.tokens.empty()) question.tokens = {usual_tokens(question.model)};
  if (question.threads == 0) {
    const int devices = question.machine.devices;
    question.threads = flags.machine.empty() ? 1 : zero::threads_of(question.flags, devices);
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

template <typename Answer>
void print_answer(const Answer& answer, bool json) {
  zero::print(json ? zero::json_of(answer).dump(2) + "\n"
                   : zero::printable_text(zero::text_of(answer)));
}

int answer(const Flags& flags) {
  if (flags.explain) {
    zero::print(zero::explained(flags.figures));
    return 0;
  }
  ZERO_CHECK(!flags.model.empty(),
             "--model is missing; give a name (--model 7b), sizes or a config.json");
  if (flags.asks_inference) {
    const zero::InferenceAnswer found = zero::answer_inference(inference_question(flags));
    print_answer(found, flags.json);
    return found.fits() ? zero::exit_status::kOk : zero::exit_status::kNo;
  }
  const zero::TrainingQuestion question = training_question(flags);
  if (flags.write) zero::check_written(*flags.write, static_cast<std::size_t>(flags.top));
  zero::TrainingAnswer found = answer_with_progress(question, flags.top);
  if (flags.write) zero::write_rows(found, *flags.write);
  print_answer(found, flags.json);
  return found.rows.empty() ? zero::exit_status::kNo : zero::exit_status::kOk;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Says how a model can be trained on a machine, or answer, and what each way takes: memory by "
      "the engine's own plan, bytes sent, FLOP. Nothing is trained or allocated; no GPU is "
      "needed.\n"
      "  zero_plan --model 7b --gpus 8 --memory 80GB\n"
      "  zero_plan --model config.json --gpus 2x8 --memory 80GB --batch 512 --write run.json\n"
      "  zero_plan --inference --model llama-3.1-8b --gpus 1 --memory 24GB --requests 8 --tokens "
      "4096\n"
      "Status: 0; 1 if no way fits; 2 if the question could not be answered.",
      "zero_plan"};
  Flags flags;
  add_shared(app, flags);
  add_training(app, flags);
  add_inference(app, flags);
  add_explain(app, flags);
  return zero::run_program(app, argc, argv, {.trouble = zero::exit_status::kTrouble},
                           [&] { return answer(flags); });
}
