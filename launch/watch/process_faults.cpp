// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/process_faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "launch/flight/flight_place.h"
#include "launch/flight/run_folders.h"
#include "launch/process/exit_status.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

/// The signal has ended the process by then.
constexpr std::chrono::seconds kForEnd{1};

}  // namespace

WatchdogOptions ProcessFaults::watchdog(double hang_seconds) {
  return {
      .hang_seconds = hang_seconds,
      .tell =
          [this](const std::vector<std::string>& lines) {
            told();
            print_error("{}: {}{}\n", program_, fmt::join(lines, "\n"), behind_a_fault());
          },
      .end =
          [this] {
            keep_files();
            ::_exit(exit_status::kFault);
          },
      .warn =
          [this](const std::string& line) { print_error("{}: warning: {}\n", program_, line); }};
}

std::string ProcessFaults::failing(RunFaults* rank, const std::exception& error) {
  std::string words = rank == nullptr ? error.what() : rank->failing(error);
  keep_files();
  // Ranks that the same signal has ended already are no fault: the signal gives the status.
  if (ends_) std::this_thread::sleep_for(kForEnd);
  told();
  return rank == nullptr ? words : words + behind_a_fault();
}

std::string ProcessFaults::behind_a_fault() const {
  const std::string line = next_step_ ? next_step_() : "";
  return line.empty() ? "" : "\n" + line;
}

bool ProcessFaults::any() const {
  const std::scoped_lock lock(mutex_);
  return !ranks_.empty() || !starting_.empty();
}

bool ProcessFaults::takes_over() const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::any_of(ranks_, [](const RunFaults* each) { return each->takes_over(); });
}

std::string ProcessFaults::waits() const {
  if (launched_ != 0) return "";
  const std::scoped_lock lock(mutex_);
  for (const RunFaults* const each : ranks_) {
    if (std::string line = each->waits(); !line.empty()) return line;
  }
  return "";
}

void ProcessFaults::keep_files() const {
  side_by_side([](const RunFaults& rank) { rank.keep_files(); });
}

// Each may wait for a server that takes the copy of its flight file.
void ProcessFaults::side_by_side(const std::function<void(RunFaults&)>& act) const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::jthread> acts;
  for (RunFaults* const each : ranks_) {
    try {
      acts.emplace_back([&act, each] { act(*each); });
    } catch (const std::exception&) {  // there is no room for a thread
      act(*each);
    }
  }
}

void ProcessFaults::end_by(int signal, const std::function<void()>& tell) {
  ends_ = true;
  const bool first = launched_ == 0;
  const auto told_by = first ? RunFaults::Told::by_this_rank : RunFaults::Told::by_others;
  side_by_side([=](RunFaults& rank) { rank.ended_by(signal, told_by); });
  if (first && !told_) tell();
  keep_files();
  if (!first) std::this_thread::sleep_for(kForReader);
  const std::scoped_lock lock(mutex_);
  for (const auto& [folder, rank] : starting_) {
    if (!folder.empty()) remove_own_flights(folder, flight_file_name(rank));
  }
}

}  // namespace zero
