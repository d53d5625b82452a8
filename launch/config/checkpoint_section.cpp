// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/config/answers.h"
#include "launch/config/checked_value.h"
#include "launch/config/run_identity.h"
#include "launch/config/train_config.h"

namespace zero {
namespace {

/// run.resume, with "auto" replaced by "never" if there is no folder to look in.
std::string make_resume(Configuration& values, const std::string& folder) {
  if (!values.is_null("run.resume")) return values.text("run.resume");
  if (folder.empty() && values.at("run.resume").source != "default") {
    throw refusal_of(
        values, {{"run.resume"}},
        "run.resume is \"auto\" without run.checkpoint.folder, in which the newest checkpoint "
        "would be looked for; give the folder, or the path of a checkpoint");
  }
  const std::string resume = folder.empty() ? "never" : "auto";
  values.resolve("run.resume", resume,
                 folder.empty() ? "no run.checkpoint.folder" : "run.checkpoint.folder");
  return resume;
}

/// Without a checkpoint to begin from, no key differs.
void check_changes(const Configuration& values, const TrainConfig::Checkpoints& checkpoints) {
  constexpr const char* kChanges = "run.resume_changes";
  if (checkpoints.resume_changes.empty()) return;
  if (checkpoints.resume == "never") {
    throw refusal_of(values, {{kChanges}},
                     "run.resume_changes is given, but no checkpoint is resumed; give run.resume "
                     "or run.checkpoint.folder, or leave it out");
  }
  const std::vector<std::string> known = identity_keys();
  std::vector<std::string> kept;
  std::vector<std::string> strangers;
  for (const std::string& key : checkpoints.resume_changes) {
    (std::ranges::count(known, key) > 0 ? kept : strangers).push_back(key);
  }
  if (strangers.empty()) return;
  throw refusal_of(values, {{kChanges, kept.empty() ? nlohmann::json() : nlohmann::json(kept)}},
                   "run.resume_changes: \"{}\" {} that a checkpoint is held to; expected {} {}. "
                   "Other keys may change without being named",
                   fmt::join(strangers, "\", \""),
                   strangers.size() == 1 ? "is no key" : "are no keys",
                   strangers.size() == 1 ? "one of" : "some of", fmt::join(known, ", "));
}

/// Keys that save nothing without a folder.
void check_folder(const Configuration& values, Refusals& refusals) {
  if (!values.text("run.checkpoint.folder").empty()) return;
  std::vector<std::string> needing{"run.stop_after"};
  // A folder of null turns off what the file asks for.
  if (!values.given("run.checkpoint.folder")) {
    for (const std::string& key : keys_of_section("run.checkpoint")) {
      needing.push_back("run.checkpoint." + key);
    }
  }
  for (const std::string& key : needing) {
    if (!values.given(key) || values.is_null(key)) continue;
    refusals.add(
        refusal_of(values, {{key}},
                   "{} is given without run.checkpoint.folder, so that nothing would be saved; add "
                   "run.checkpoint.folder, the folder to save into, or leave {} out",
                   key, key));
  }
}

}  // namespace

TrainConfig::Checkpoints make_checkpoints(Configuration& values, Refusals& refusals) {
  const std::string folder = values.text("run.checkpoint.folder");
  check_folder(values, refusals);
  TrainConfig::Checkpoints checkpoints{
      .folder = folder,
      .every_steps = values.integer("run.checkpoint.every_steps"),
      .every_seconds = 60 * values.number("run.checkpoint.every_minutes"),
      .keep_last = static_cast<int>(values.integer("run.checkpoint.keep_last")),
      .keep_every = values.integer("run.checkpoint.keep_every"),
      .file_bytes = values.integer("run.checkpoint.file_bytes"),
      .required = values.boolean("run.checkpoint.required"),
      .resume = "never",
      .resume_changes = values.texts("run.resume_changes"),
      .stop_after_seconds = seconds_of(values.at("run.stop_after").value).value_or(0)};
  if (!folder.empty() && values.given("run.checkpoint.keep_every") && checkpoints.keep_last == 0) {
    refusals.add(refusal_of(values, {{"run.checkpoint.keep_every"}},
                            "run.checkpoint.keep_every is given, but run.checkpoint.keep_last is "
                            "0, which keeps all; set keep_last, or leave keep_every out"));
  }
  refusals.collect([&] { checkpoints.resume = make_resume(values, folder); });
  refusals.collect([&] { check_changes(values, checkpoints); });
  return checkpoints;
}

std::vector<Option> checkpoint_options() {
  using enum ValueType;
  return {
      honour("run.checkpoint.folder", text, "null",
             "save checkpoints into this folder, the last step's always; null: save none"),
      honour("run.checkpoint.every_steps", integer, "0", "steps between two checkpoints; 0: none")
          .from(0),
      honour("run.checkpoint.every_minutes", number, "0",
             "minutes between two checkpoints, by the first rank's clock; 0: none")
          .from(0, 1e6),
      honour("run.checkpoint.keep_last", integer, "0",
             "newest checkpoints that stay; an older one is removed once a new one is whole; 0: "
             "all stay")
          .from(0, 1e6),
      honour("run.checkpoint.keep_every", integer, "0",
             "checkpoints of steps that this divides stay for good; 0: none")
          .from(0),
      honour("run.checkpoint.file_bytes", integer, "4294967296", "files are cut at this size")
          .from(4096),
      honour("run.checkpoint.required", boolean, "true",
             "a save that fails ends the run; false: training goes on, with a warning"),
      honour("run.resume", text, "\"auto\"",
             "where to go on: \"auto\", the newest good checkpoint of run.checkpoint.folder, if "
             "any; the path of one; or \"never\"")
          .or_auto(),
      honour("run.resume_changes", text_list, "null",
             "keys, of those that decide a run's bits, that may differ from the checkpoint's"),
      honour("run.stop_after", duration, "null",
             "time from the start of the program after which the run saves, after the step in "
             "hand, and ends well; set it below a scheduler's limit by a step, a save and some"),
  };
}

}  // namespace zero
