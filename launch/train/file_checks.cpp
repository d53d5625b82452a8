// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/file_checks.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/weights.h"
#include "collectives/agreement.h"
#include "files/file_system.h"
#include "launch/config/train_config.h"
#include "launch/memory/memory_trace_file.h"
#include "launch/process/open_files.h"
#include "launch/train/tier_lines.h"
#include "weights/hf/advice.h"
#include "weights/model_files.h"

namespace zero {
namespace {

/// The weights are written to a file beside the target first, then renamed.
void check_weights_target(const std::string& path) {
  try {
    if (names_folder(path)) return check_folder_target(path);
    files::check_target(files::disk(), path);
    files::check_target(files::disk(), path + ".partial");
  } catch (const Error& error) {
    fail("run.save_weights: {}; give the path of a file or a folder/ that may be written",
         error.what());
  }
}

/// A checkpoint, or a folder of some, is no folder of weights: a mistake that is easily made.
void check_no_checkpoint(const std::string& init) {
  const std::filesystem::path path = init;
  std::error_code error;
  std::string found;
  if (std::filesystem::exists(path / "COMMIT", error)) {
    found = init;
  } else if (std::filesystem::is_directory(path, error)) {
    const std::vector<FoundCheckpoint> steps = find_checkpoints(files::disk(), init);
    const auto whole = std::ranges::find_if(steps, &FoundCheckpoint::complete);
    if (whole != steps.end()) found = whole->path;
  }
  ZERO_CHECK(found.empty(),
             "run.init: {} is {}; give {}/weights to begin with its weights, or run.resume to go "
             "on with the run",
             init, found == init ? "a checkpoint" : "a folder of checkpoints", found);
}

std::vector<std::string> initial_files(const std::string& init) {
  check_no_checkpoint(init);
  try {
    return weight_files(init);
  } catch (const Error& error) {
    fail("run.init: {}", error.what());
  }
}

void check_initial_weights(const std::string& init) {
  if (init.empty()) return;
  for (const std::string& path : initial_files(init)) {
    ZERO_CHECK(::access(path.c_str(), R_OK) == 0,
               "run.init: cannot read {}; give an existing safetensors file or Hugging Face "
               "folder{}",
               path, folder_advice(init));
  }
}

/// Whether one who writes `path` may make `name`: `path` with endings such as ".rank1", ".before",
/// ".2", ".lock" and ".partial".
bool is_made_beside(std::string_view name, std::string_view path) {
  if (!name.starts_with(path)) return false;
  name.remove_prefix(path.size());
  while (!name.empty()) {
    if (name.front() != '.') return false;
    name.remove_prefix(1);
    std::string_view ending = name.substr(0, name.find('.'));
    name.remove_prefix(ending.size());
    if (ending == "before" || ending == "lock" || ending == "partial") continue;
    if (ending.starts_with("rank")) ending.remove_prefix(4);
    if (ending.empty() || ending.find_first_not_of("0123456789") != ending.npos) return false;
  }
  return true;
}

/// Traces are renamed and begun anew: no other file of the run may have one of their names, nor a
/// trace one of its.
void check_trace_apart(const TrainConfig::Run& run) {
  const auto place = [](const std::string& path) {
    std::error_code error;
    const std::filesystem::path whole = std::filesystem::absolute(path, error);
    return files::behind_links(error ? path : whole.string());
  };
  struct Other {
    const char* key;
    const std::string& path;
  };
  const std::string trace = place(run.memory_trace);
  for (const Other& other : {Other{"run.log", run.log}, Other{"run.trace", run.trace},
                             Other{"run.save_weights", run.save_weights}}) {
    if (other.path.empty()) continue;
    const std::string path = place(other.path);
    ZERO_CHECK(!is_made_beside(path, trace) && !is_made_beside(trace, path) &&
                   !files::same_place(run.memory_trace, other.path),
               "run.memory_trace: {} takes names of {} ({}): one would replace the other; give "
               "another path",
               run.memory_trace, other.key, other.path);
  }
}

/// The last step's save is too late for a mistyped name. Missing folders above FOLDER are made too.
void check_checkpoint_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path path = fs::absolute(folder + "/").parent_path();
  std::error_code error;  // of what cannot be looked at: told by the access below
  fs::path writable = path;
  while (!fs::exists(writable, error) && writable != writable.root_path()) {
    writable = writable.parent_path();
  }
  const bool there = writable == path;
  ZERO_CHECK(!fs::exists(writable, error) || fs::is_directory(writable, error),
             "run.checkpoint.folder: {} is not a folder; give another name", writable.string());
  ZERO_CHECK(::access(writable.c_str(), W_OK | X_OK) == 0,
             "run.checkpoint.folder: {} cannot be {}: {}: {}; give a folder that all ranks may "
             "write to",
             path.string(), there ? "written to" : "made", writable.string(), std::strerror(errno));
}

void check_checkpoints(const TrainConfig::Checkpoints& checkpoints) {
  const std::string& resume = checkpoints.resume;
  ZERO_CHECK(resume == "auto" || resume == "never" || std::filesystem::is_directory(resume),
             "run.resume: {} is no folder; give that of a checkpoint, \"auto\" or \"never\"",
             resume);
  if (!checkpoints.folder.empty() && checkpoints.required) {
    check_checkpoint_folder(checkpoints.folder);
  }
}

}  // namespace

void make_checkpoint_folder(const TrainConfig& config) {
  const TrainConfig::Checkpoints& checkpoints = config.checkpoints;
  if (checkpoints.folder.empty()) return;
  check_checkpoints(checkpoints);
  const std::string why =
      failure_of([&] { std::filesystem::create_directories(checkpoints.folder); });
  ZERO_CHECK(why.empty() || !checkpoints.required, "run.checkpoint.folder: {}", why);
}

void check_places(const TrainConfig& config) {
  if (!config.run.log.empty()) check_writable(config.run.log, "run.log");
  check_checkpoints(config.checkpoints);
}

void check_files(const TrainConfig& config) {
  if (!config.engine.tiers.file.folder.empty()) check_tier_folder(tier_place(config));
  if (!config.run.trace.empty()) check_writable(config.run.trace, "run.trace");
  if (!config.run.memory_trace.empty()) {
    check_writable(config.run.memory_trace, "run.memory_trace");
    check_trace_target(config.run.memory_trace);
    check_trace_apart(config.run);
  }
  if (!config.run.save_weights.empty()) {
    check_weights_target(config.run.save_weights);
    ZERO_CHECK(
        config.run.init.empty() || !files::same_place(config.run.save_weights, config.run.init),
        "run.save_weights: {} is what the run begins with (model.hf or run.init), and would "
        "be lost; give another path",
        config.run.save_weights);
  }
  check_initial_weights(config.run.init);
}

}  // namespace zero
