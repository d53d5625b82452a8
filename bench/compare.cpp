// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "bench/product_rate.h"
#include "bench/section.h"
#include "bench/stepper.h"
#include "bench/timing.h"
#include "launch/data/token_file.h"
#include "launch/process/subprocess.h"

namespace zero::bench {
namespace {

constexpr int kWarmUp = 2;       // steps before the timed ones
constexpr int kPatience = 1800;  // seconds
constexpr int kTimedOut = 124;   // as timeout(1) says it

/// One contender: what is run, on what.
struct Contender {
  std::string name;                  ///< until it names itself
  std::vector<std::string> command;  ///< prints {"name", "version", "seconds": [...]} at the end
  std::string log{};                 ///< where not empty: it writes zero_train's log there instead
  int ranks = 1;
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::vector<double> seconds{};  ///< of single steps
  std::string missing{};          ///< why it could not be measured
};

/// A folder that is gone at the end of the scope.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "zero_bench_XXXXXX").string();
    ZERO_CHECK(::mkdtemp(name.data()) != nullptr, "cannot make a folder like {}", name);
    path_ = name;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// The last line of `text` that is a JSON object, or null.
nlohmann::json answer_in(const std::string& text) {
  const std::size_t begin =
      text.starts_with('{') && text.rfind("\n{") == std::string::npos ? 0 : text.rfind("\n{");
  if (begin == std::string::npos) return {};
  return nlohmann::json::parse(text.substr(begin), nullptr, false);
}

/// Seconds of the steps in a log of zero_train but the first ones.
std::vector<double> steps_in(const std::string& log) {
  std::vector<double> seconds;
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json step = nlohmann::json::parse(line, nullptr, false);
    if (step.is_object() && step.value("step", 0) > kWarmUp)
      seconds.push_back(step["step_seconds"]);
  }
  return seconds;
}

void measure(Contender& contender) {
  std::vector<std::string> command{"timeout", std::to_string(kPatience)};
  command.insert(command.end(), contender.command.begin(), contender.command.end());
  const Finished finished = run_command(command);
  const nlohmann::json answer = answer_in(finished.output);
  std::vector<double> seconds;
  if (finished.status == 0 && !contender.log.empty()) {
    seconds = steps_in(contender.log);
  } else if (finished.status == 0 && answer.is_object() && answer.contains("seconds")) {
    seconds = answer["seconds"].get<std::vector<double>>();
    contender.name = fmt::format("{} {}", answer.value("name", contender.name),
                                 answer.value("version", std::string()));
  }
  if (seconds.empty()) {
    const std::string why = reason_in(finished);
    contender.missing = finished.status == kTimedOut
                            ? fmt::format("no result within {} s", kPatience)
                        : why.empty() ? fmt::format("status {}", finished.status)
                                      : why;
  }
  contender.seconds.insert(contender.seconds.end(), seconds.begin(), seconds.end());
}

/// A file of random tokens and a configuration that is zero_train's default but for the sizes.
void write_run(const Scratch& scratch, std::int64_t tokens) {
  TokenFileWriter writer(scratch.file("tokens.bin"), 2);
  std::minstd_rand random(1);
  std::vector<std::uint32_t> ids(static_cast<std::size_t>(tokens));
  for (std::uint32_t& id : ids) id = static_cast<std::uint32_t>(random() % 50257);
  writer.write(ids);
  writer.finish();
  writer.commit();
  const nlohmann::json tree{
      {"model", "gpt2-124m"},
      {"data", {{"train", scratch.file("tokens.bin")}}},
      {"bf16", {{"enabled", true}}},
      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-4}, {"weight_decay", 0.1}}}}}};
  write_file(scratch.file("run.json"), tree.dump());
}

/// Others' trainers and ours on the same model, batch and machine, in turns.
class Compare final : public Section {
 public:
  std::string name() const override { return "compare"; }
  std::string summary() const override {
    return "compare peers: PyTorch, FSDP2 and DeepSpeed beside zero_train, with a Python that has "
           "them";
  }
  void add_options(CLI::App& command) override {
    command.add_option("with", with_, "peers")->required()->check(CLI::IsMember({"peers"}));
    command.add_option("--python", python_, "a Python with torch, and deepspeed where wanted")
        ->required();
    command.add_option("--ranks", ranks_, "of the sharded contenders, which divide 8")
        ->check(CLI::IsMember({2, 4, 8}))
        ->capture_default_str();
    command.add_option("--turns", turns_, "times that each contender is started")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    command.add_option("--steps", steps_, "timed steps of a turn")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    command.add_option("--nvme", nvme_,
                       "also with optimizer states on NVMe, in this folder: zero_train, DeepSpeed");
    command.add_option("--scripts", scripts_, "where the peers' scripts are")
        ->capture_default_str();
  }

  void run(Context& context) override {
    ZERO_CHECK(context.size() == 1,
               "compare starts its own ranks; run zero_bench compare without mpirun");
    const Scratch scratch;
    write_run(scratch, (kWarmUp + steps_) * 8 * 512 + 1);
    std::vector<Contender> contenders = list(context.threads(), scratch);
    ProductRate products(DType::bf16, context.threads());
    for (int turn = 0; turn < turns_; ++turn) {
      for (Contender& each : contenders) {
        products.sample(2);
        if (each.missing.empty()) {
          fmt::print(stderr, "compare: turn {} of {}: {}\n", turn + 1, turns_, each.name);
          measure(each);
        }
        if (turn + 1 == turns_) add(each, products, context.report());
      }
    }
  }

 private:
  std::vector<Contender> list(int threads, const Scratch& scratch) const {
    std::vector<Contender> all;
    all.push_back(ours(threads, 1, scratch));
    all.push_back(peer("PyTorch eager", {"single.py"}, threads, 1));
    all.push_back(peer("PyTorch compiled", {"single.py", "--compile"}, threads, 1));
    all.push_back(ours(threads, ranks_, scratch));
    all.push_back(peer("FSDP2", {"fsdp2.py"}, threads, ranks_));
    all.push_back(peer("DeepSpeed ZeRO-3", {"deepspeed_zero.py", "--stage", "3"}, threads, ranks_));
    if (nvme_.empty()) return all;
    all.push_back(ours_on_nvme(threads, scratch));
    all.push_back(peer("DeepSpeed ZeRO-3, states on NVMe", {"deepspeed_nvme.py", "--folder", nvme_},
                       threads, 1));
    return all;
  }

  Contender ours_on_nvme(int threads, const Scratch& scratch) const {
    Contender each = ours(threads, 1, scratch);
    each.name = "zero_train, states on NVMe";
    each.log = scratch.file("nvme.log");
    const std::string offload = "zero_optimization.offload_optimizer.";
    for (const std::string& value :
         {"run.log=" + each.log, offload + "device=nvme", offload + "nvme_path=" + nvme_}) {
      each.command.insert(each.command.end(), {"--set", value});
    }
    return each;
  }

  static Contender sized(const std::string& name, int ranks) {
    return {.name = name,
            .command = {},
            .ranks = ranks,
            .batch = ranks > 1 ? 8 : 4,
            .sequence = ranks > 1 ? 256 : 512};
  }

  Contender ours(int threads, int ranks, const Scratch& scratch) const {
    const int stage = ranks > 1 ? 3 : 0;
    Contender each = sized(fmt::format("zero_train, stage {}", stage), ranks);
    each.log = scratch.file(fmt::format("{}.log", ranks));
    if (ranks > 1) {
      each.command = {"mpirun",          "-np",       std::to_string(ranks),
                      "--oversubscribe", "--bind-to", "none"};
      if (::geteuid() == 0) each.command.emplace_back("--allow-run-as-root");
    }
    const auto program =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "zero_train";
    each.command.insert(each.command.end(),
                        {program.string(), "--config", scratch.file("run.json")});
    for (const std::string& value :
         {fmt::format("run.log={}", each.log), fmt::format("run.steps={}", kWarmUp + steps_),
          fmt::format("run.threads={}", std::max(1, threads / ranks)),
          fmt::format("data.sequence_length={}", each.sequence),
          fmt::format("train_batch_size={}", each.batch),
          fmt::format("train_micro_batch_size_per_gpu={}", each.batch / ranks),
          fmt::format("zero_optimization.stage={}", stage)}) {
      each.command.insert(each.command.end(), {"--set", value});
    }
    return each;
  }

  Contender peer(const std::string& name, const std::vector<std::string>& script, int threads,
                 int ranks) const {
    Contender each = sized(name, ranks);
    each.command = {python_, scripts_ + "/" + script[0]};
    each.command.insert(each.command.end(), script.begin() + 1, script.end());
    for (const auto& [option, value] :
         {std::pair{"--ranks", std::int64_t{ranks}}, std::pair{"--batch", each.batch},
          std::pair{"--sequence", each.sequence}, std::pair{"--steps", std::int64_t{steps_}},
          std::pair{"--threads", std::int64_t{std::max(1, threads / ranks)}}}) {
      each.command.insert(each.command.end(), {option, std::to_string(value)});
    }
    return each;
  }

  void add(Contender& contender, const ProductRate& products, Report& report) const {
    if (!contender.missing.empty()) {
      report.note(
          fmt::format("compare: {} was not measured: {}", contender.name, contender.missing));
      return;
    }
    const Timing timing = bench::summary(std::move(contender.seconds));
    const auto tokens = static_cast<double>(contender.batch * contender.sequence);
    const double per_token =
        flop_per_token(make_config({.batch = contender.batch, .sequence = contender.sequence}));
    report.add({.section = name(),
                .name = fmt::format("{}, {} x {}{}", contender.name, contender.batch,
                                    contender.sequence, products.remark()),
                .ranks = contender.ranks,
                .bytes = 0,
                .dtype = "bf16",
                .value = tokens / timing.median,
                .best = tokens / timing.best,
                .unit = "tokens/s",
                .limit = products.rate() / per_token});
  }

  std::string with_;
  std::string python_;
  std::string scripts_ = ZERO_PEERS;
  std::string nvme_;  // empty: none
  int ranks_ = 8;
  int turns_ = 1;
  int steps_ = 4;
};

}  // namespace

std::unique_ptr<Section> compare_section() { return std::make_unique<Compare>(); }

}  // namespace zero::bench
