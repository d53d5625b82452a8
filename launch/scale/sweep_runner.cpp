// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/scale/sweep_runner.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file_text.h"
#include "base/message_text.h"
#include "base/seconds_since.h"
#include "launch/data/new_file.h"
#include "launch/data/token_file.h"
#include "launch/process/quantity.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

constexpr std::chrono::milliseconds kPoll{50};
constexpr std::int64_t kLastOutput = std::int64_t{1} << 20;  // bytes that are searched for a reason
constexpr std::chrono::seconds kGrace{5};  // for a run that is ended, to end by itself

std::string digest_of_program(const std::string& path) {
  const std::string bytes = file_text(path);
  ZERO_CHECK(!bytes.empty(), "--program {}: cannot be read; build it, or name zero_train", path);
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

/// Why a run with that status and output failed.
std::string failure_of(int status, const std::string& output) {
  const std::string reason =
      reason_in({.status = status, .output = "", .errors = file_text(output, kLastOutput)});
  const std::string code =
      status > 128 ? fmt::format("signal {}", status - 128) : fmt::format("status {}", status);
  return reason.empty() ? code + ", without a word"
                        : printable_line(reason, 400) + " (" + code + ")";
}

/// The smallest model that zero_train takes: the limits' run measures the machine, not a model.
nlohmann::ordered_json limits_configuration(const Sweep& sweep, const std::string& data,
                                            const std::string& log) {
  nlohmann::ordered_json file = sweep.configuration({}, data, log);
  file["model"] = {{"family", "gpt2"}, {"layers", 1},   {"width", 64},
                   {"heads", 1},       {"context", 64}, {"vocabulary", 256}};
  file["data"]["sequence_length"] = 64;
  file["train_batch_size"] = 1;
  file["train_micro_batch_size_per_gpu"] = 1;
  file["run"]["steps"] = 3;
  file["run"]["profile"] = true;
  return file;
}

}  // namespace

SweepRunner::SweepRunner(const Sweep& sweep, Options options, Console& console)
    : sweep_(sweep),
      options_(std::move(options)),
      console_(console),
      program_digest_(digest_of_program(options_.program)) {}

std::string SweepRunner::data_path(std::int64_t vocabulary, std::int64_t tokens) const {
  return fmt::format("{}/tokens-{}-{}.bin", options_.folder, vocabulary, tokens);
}

/// A file of random tokens, made unless it is there.
std::string SweepRunner::data_file(std::int64_t vocabulary, std::int64_t tokens) const {
  const std::string path = data_path(vocabulary, tokens);
  if (std::filesystem::exists(path)) return path;
  std::mt19937_64 random(1);
  constexpr std::int64_t kTwoBytes = 65536;
  TokenFileWriter writer(path, vocabulary > kTwoBytes ? 4 : 2);
  std::vector<std::uint32_t> part;
  for (std::int64_t done = 0; done < tokens; done += std::ssize(part)) {
    part.resize(static_cast<std::size_t>(std::min<std::int64_t>(tokens - done, 1 << 20)));
    for (std::uint32_t& token : part) {
      token = static_cast<std::uint32_t>(random() % static_cast<std::uint64_t>(vocabulary));
    }
    writer.write(part);
  }
  writer.finish();
  writer.commit();
  return path;
}

SweepRunner::Request SweepRunner::request(const std::string& name, int world,
                                          nlohmann::ordered_json configuration,
                                          const std::vector<std::string>& overrides) const {
  Request request{.folder = options_.folder + "/runs/" + name,
                  .configuration = std::move(configuration),
                  .commands = {}};
  Command program{options_.program, "--config", request.folder + "/ds.json"};
  for (const std::string& each : overrides) program.insert(program.end(), {"--set", each});
  request.commands = options_.launcher.commands(world, program);
  return request;
}

SweepRunner::Request SweepRunner::request(const ScalePoint& point, int repeat) const {
  const std::string name = fmt::format("{}.{}", point.name(), repeat);
  const std::string log = options_.folder + "/runs/" + name + "/run.log";
  const std::string data = data_path(sweep_.model.vocabulary, sweep_.data_tokens(point));
  return request(name, point.world, sweep_.configuration(point, data, log), sweep_.overrides);
}

std::string SweepRunner::commands_text(const std::vector<ScalePoint>& points) const {
  std::string text;
  for (const ScalePoint& point : points) {
    text += fmt::format("# {}\n", point.text());
    for (const Command& command : request(point, 1).commands) text += shell_text(command) + "\n";
  }
  return text;
}

nlohmann::ordered_json SweepRunner::asked(const Request& request) const {
  nlohmann::ordered_json commands = nlohmann::ordered_json::array();
  for (const Command& command : request.commands) commands.push_back(shell_text(command));
  return {{"configuration", request.configuration},
          {"commands", std::move(commands)},
          {"program", program_digest_}};
}

bool SweepRunner::read_result(const Request& request, ScaleRun& run) const {
  const std::string path = request.folder + "/result.json";
  if (!std::filesystem::is_regular_file(path)) return false;
  try {
    JsonFields fields = JsonFields::parse(path, file_text(path));
    if (!fields.has("figures") || fields.raw("asked") != nlohmann::json(asked(request))) {
      return false;
    }
    JsonFields figures = fields.object("figures");
    run.figures = RunFigures::from(figures);
    run.seconds = fields.number("seconds");
    return true;
  } catch (const Error& error) {
    console_.line(fmt::format("{}: no result, and is measured again", error.what()));
    return false;
  }
}

std::string SweepRunner::left_text(double seconds) const {
  if (durations_.empty()) return "";
  const double mean = std::accumulate(durations_.begin(), durations_.end(), 0.0) /
                      static_cast<double>(durations_.size());
  const double left = std::max(0.0, mean - seconds) + mean * static_cast<double>(total_ - done_);
  return fmt::format(", about {} left", duration_text(left));
}

/// Runs the commands of a request until they end, are stopped, or their time is over.
SweepRunner::Outcome SweepRunner::start(const Request& request, const std::string& text) {
  namespace fs = std::filesystem;
  const std::string output = request.folder + "/output.txt";
  fs::create_directories(request.folder);
  for (const char* old : {"/result.json", "/run.log", "/output.txt"}) {
    fs::remove_all(request.folder + old);
  }
  write_whole_file(request.folder + "/ds.json", request.configuration.dump(2) + "\n");
  const auto begin = std::chrono::steady_clock::now();
  Outcome outcome;
  Job job(request.commands, output);
  std::optional<int> status;
  while (!(status = job.status())) {
    outcome.seconds = seconds_since(begin);
    outcome.stopped = options_.stopped && options_.stopped();
    if (outcome.stopped || outcome.seconds > options_.timeout) break;
    console_.refresh(
        fmt::format("{}: {}{}", text, duration_text(outcome.seconds), left_text(outcome.seconds)));
    std::this_thread::sleep_for(kPoll);
  }
  if (!status && !outcome.stopped) {
    const std::string last = reason_in({.output = file_text(output, kLastOutput)});
    outcome.failure = fmt::format("had not ended after {:g} s (--timeout); its last line: {}",
                                  options_.timeout, printable_line(last, 200));
  }
  job.end(kGrace);
  outcome.seconds = seconds_since(begin);
  if (status && *status != 0) outcome.failure = failure_of(*status, output);
  return outcome;
}

MachinePeak SweepRunner::peak() {
  constexpr std::int64_t kTokens = 1 << 12;
  const std::string log = options_.folder + "/runs/limits/run.log";
  const Request limits =
      request("limits", 1, limits_configuration(sweep_, data_file(256, kTokens), log), {});
  const std::string result = limits.folder + "/result.json";
  const nlohmann::ordered_json same{{"asked", asked(limits)}};
  if (!std::filesystem::is_regular_file(result) || file_text(result) != same.dump(2) + "\n") {
    const Outcome outcome = start(limits, "the machine's limits");
    if (outcome.stopped) return {};
    ZERO_CHECK(outcome.failure.empty(), "a small run on one process, in {}, failed: {}",
               limits.folder, outcome.failure);
    write_whole_file(result, same.dump(2) + "\n");
  }
  return read_machine_peak(log);
}

void SweepRunner::say(const ScaleRun& run) {
  std::string text = fmt::format("{}/{} {}, run {} of {}: ", done_, total_, run.point.text(),
                                 run.repeat, options_.repeats);
  if (!run.failure.empty()) {
    text += "failed: " + run.failure;
  } else {
    const RunFigures& found = run.figures;
    text += fmt::format("{} tokens/s, {:.1f} ms a step", count_text(found.tokens_per_second),
                        1e3 * found.step_seconds);
    if (!run.point.is_baseline()) {
      text += fmt::format(", exposed {:.1f} %", 100 * found.exposed_seconds / found.step_seconds);
    }
  }
  console_.end_progress();
  console_.line(text);
}

/// Does the run and keeps its result. False if it was stopped.
bool SweepRunner::measure(const Request& wanted, ScaleRun& run) {
  const Outcome outcome = start(wanted, fmt::format("{}/{} {}", done_, total_, run.point.text()));
  if (outcome.stopped) return false;
  run.seconds = outcome.seconds;
  run.failure = outcome.failure;
  durations_.push_back(run.seconds);
  nlohmann::ordered_json result{{"asked", asked(wanted)}, {"seconds", run.seconds}};
  try {
    if (run.failure.empty()) {
      run.figures = read_run_figures(wanted.folder + "/run.log", sweep_.warmup);
      result["figures"] = run.figures.json();
    }
  } catch (const Error& error) {
    run.failure = error.what();
  }
  if (!run.failure.empty()) result["failure"] = run.failure;
  write_whole_file(wanted.folder + "/result.json", result.dump(2) + "\n");
  say(run);
  return true;
}

std::vector<ScaleRun> SweepRunner::run(
    const std::vector<ScalePoint>& points,
    const std::function<void(const std::vector<ScaleRun>&)>& after) {
  for (const ScalePoint& point : points) {
    data_file(sweep_.model.vocabulary, sweep_.data_tokens(point));
  }
  total_ = std::ssize(points) * options_.repeats;
  std::vector<ScaleRun> runs;
  std::set<std::string> failed;  // points by name
  std::int64_t there = 0;
  for (int repeat = 1; repeat <= options_.repeats; ++repeat) {
    for (const ScalePoint& point : points) {
      ++done_;
      if (failed.contains(point.name())) continue;
      ScaleRun run{.point = point, .repeat = repeat};
      const Request wanted = request(point, repeat);
      if (read_result(wanted, run)) {
        ++there;
        runs.push_back(std::move(run));
        continue;
      }
      if (there > 0) console_.line("read from the folder: " + counted(there, "run"));
      there = 0;
      if (!measure(wanted, run)) return runs;
      if (!run.failure.empty()) failed.insert(point.name());
      runs.push_back(std::move(run));
      after(runs);
    }
  }
  return runs;
}

}  // namespace zero
