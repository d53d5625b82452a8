// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// What a run tells of its saves, on its console and in its log.
#include <fmt/format.h>

#include <utility>

#include "base/decimal_bytes.h"
#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "collectives/agreement.h"
#include "launch/train/run_checkpoints.h"

namespace zero {

void RunCheckpoints::tell(const SaveReport& report) {
  if (!report.error.empty()) {
    if (options_.required && report.step != skipped_save_) {
      throw AgreedError(report.error + "; " + newest_text() +
                        ". Mend the cause, or set run.checkpoint.required to false to train on "
                        "without");
    }
    console_.line("warning: " + report.error);
    log_line({{"not_saved_step", report.step}, {"error", report.error}});
    return;
  }
  if (std::exchange(first_save_, false) && console_.mode() != Console::Mode::silent) {
    console_.line(fmt::format("checkpoints go to {} through {}", options_.folder,
                              training_state_.checkpointer()->how()));
  }
  saved_step_ = report.step;
  if (progress_ != nullptr) {
    progress_->saved(saved_step_, checkpoint_path(options_.folder, {.step = saved_step_}));
  }
  if (!report.notes.empty()) console_.line("note: " + report.notes);
  console_.line(fmt::format("saved step {} ({} in {:.1f} s, {:.2f} s exposed)", report.step,
                            decimal_bytes(report.bytes), report.seconds, report.exposed_seconds));
  log_line({{"saved_step", report.step},
            {"bytes", report.bytes},
            {"seconds", report.seconds},
            {"exposed_seconds", report.exposed_seconds}});
}

void RunCheckpoints::log_line(const nlohmann::ordered_json& line) {
  if (log_ == nullptr) return;
  try {
    log_->write(line);
  } catch (const Error& error) {
    log_ = nullptr;
    log_failed_ = true;
    const bool saves = !options_.folder.empty();
    if (saves) requests_.end();
    console_.end_progress();
    console_.line(fmt::format(
        "warning: {}; {}", error.what(),
        saves ? "the run saves a checkpoint, then ends" : "the run goes on without a log"));
  }
}

}  // namespace zero
