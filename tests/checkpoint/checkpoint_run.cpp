// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/checkpoint_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tests/checkpoint/tensor_files.h"

namespace zero::testing {
namespace {

std::string text_of(const SaveReport& report) {
  return fmt::format("{} {} \"{}\" \"{}\"", report.step, report.bytes, report.error, report.notes);
}

/// Reports of save `step` as the trainer's own values.
nlohmann::ordered_json extra_of(std::int64_t step) { return {{"trainer", {{"step", step}}}}; }

RunResult run_rank(const SavedRun& with, Engine& engine, toy::Model& model,
                   Communicator& communicator) {
  CheckpointOptions options = with.checkpoints;
  if (with.disk_of && options.disk == nullptr) options.disk = with.disk_of(communicator.rank());
  if (with.scale != 1) {
    std::vector<float> scale(static_cast<std::size_t>(with.job.shape.width), with.scale);
    engine.states().write("scale.weight", StateKind::parameter, View::of(std::span(scale)));
  }
  Checkpointer checkpointer(engine, options);
  RunResult result;
  std::int64_t accepted = -1;
  const auto resumed = checkpointer.load(with.resume, [&](const nlohmann::ordered_json& extra) {
    accepted = extra.at("trainer").at("step").get<std::int64_t>();
  });
  result.passed_over = checkpointer.passed_over();
  if (resumed) {
    result.resumed_at = resumed->step;
    if (accepted != resumed->step || engine.states().steps_done() != resumed->step)
      fail("resumed at {}, {}, {}", resumed->step, accepted, engine.states().steps_done());
  }
  std::vector<SaveReport> reports;
  const auto collect = [&] {
    while (const auto report = checkpointer.report()) reports.push_back(*report);
  };
  for (int step = static_cast<int>(engine.states().steps_done()); step < with.last;) {
    const StepReport report = toy::step(engine, model, communicator, with.job, step++);
    if (report.nonfinite && std::isfinite(with.scale))
      fail("step {}: {} is not finite", step, *report.nonfinite);
    result.norms[step] = report.gradient_norm;
    if (std::ranges::count(with.save_after, step) > 0) checkpointer.save(extra_of(step));
    collect();
  }
  checkpointer.wait();
  collect();
  result.reports = reports;
  engine.states().check_replicas();
  result.hash = engine.states().hash();
  return result;
}

std::string text_of(const RunResult& result) {
  std::string text = fmt::format("{:x} {}\n", result.hash, result.resumed_at);
  for (const auto& [step, norm] : result.norms) text += fmt::format("{}: {}\n", step, norm);
  for (const std::string& line : result.passed_over) text += line + '\n';
  for (const SaveReport& report : result.reports) text += text_of(report) + '\n';
  return text;
}

}  // namespace

RunResult run(const SavedRun& with) {
  std::mutex mutex;
  std::optional<RunResult> common;
  toy::with_engine(with.job, [&](Engine& engine, toy::Model& model, Communicator& communicator) {
    const RunResult result = run_rank(with, engine, model, communicator);
    const std::lock_guard lock(mutex);
    if (common && text_of(*common) != text_of(result))
      fail("ranks disagree:\n{}and\n{}", text_of(*common), text_of(result));
    if (!common || communicator.rank() == 0) common = result;
  });
  return *common;
}

SavedRun run_of(int world, int stage, const std::string& folder, DType compute) {
  SavedRun with;
  with.job.world = world;
  with.job.engine = toy::options(stage, compute);
  with.job.accumulation_steps = 8 / world;
  with.checkpoints.folder = folder;
  return with;
}

SavedRun large_run_of(int world, int stage, const std::string& folder, DType compute) {
  SavedRun with = run_of(world, stage, folder, compute);
  with.job.shape = {.layers = 45, .width = 200, .vocabulary = 13, .rows = 2};
  with.scale = 0.01F;  // the many layers would give logits that overflow
  return with;
}

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file())
      files[std::filesystem::relative(entry.path(), folder).string()] =
          file_bytes(entry.path().string());
  }
  return files;
}

int open_files_below(const std::string& folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto path = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && path.string().starts_with(folder + "/")) ++count;
  }
  return count;
}

}  // namespace zero::testing
