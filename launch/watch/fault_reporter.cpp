// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/fault_reporter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "collectives/long_wait.h"
#include "launch/flight/flight_file.h"
#include "launch/watch/last_words.h"

namespace zero {
namespace {

/// Behind the diagnosis of a stopped process, which the watchdog kills.
constexpr std::string_view kDebuggers =
    "to stop a rank in a debugger, give run.watchdog=false (zero_generate: --no-watchdog) and a "
    "longer run.collective_timeout";

}  // namespace

std::string FaultReporter::in_full(const std::string& message) const {
  if (!peers_.obstacle().empty()) return message;
  if (!LongWait::is_overdue(message)) {
    return is_of_collective(message) ? message : with_host(message, peers_.rank(peers_.self()));
  }
  const std::vector<int> blamed = find_blame(ranks_.read_all()).blamed;
  const auto absent = LongWait::first_absent(message);
  const std::string first = !blamed.empty() ? with_host(message, ranks_.rank(blamed.front()))
                            : absent        ? with_host(message, absent->rank, absent->host())
                                            : message;
  return fmt::format("{}\n{}", first, fmt::join(diagnosis_of({}).lines, "\n"));
}

std::string FaultReporter::waits() const {
  if (!peers_.obstacle().empty()) return "";
  const std::vector<FlightState> states = ranks_.read_all();
  const LongestWait found = longest_wait(states, FlightFile::now());
  double mean = 0;
  for (const FlightState& state : states) mean = std::max(mean, state.mean_step_seconds);
  // Shorter ones belong to every run.
  if (found.seconds < noticed_within(mean)) return "";
  return with_host(found.line, found.culprit);
}

/// Behind the first line, in the form that launch/retry.sh reads. An empty `host`: looked up.
std::string FaultReporter::with_host(std::string text, int rank, std::string host) const {
  if (host.empty() && rank < peers_.hosts().ranks()) host = peers_.host_name_of(rank);
  if (peers_.whole_job() || host.empty()) return text;
  return text.insert(std::min(text.find('\n'), text.size()),
                     fmt::format(" (rank {} on host {})", rank, host));
}

Diagnosis FaultReporter::diagnosis_of(const Finding& finding) const {
  std::vector<FlightState> states = ranks_.read_all();
  std::vector<RankDeath> deaths;
  for (int i = 0; i < ranks_.count(); ++i) {
    FlightState& state = states[static_cast<std::size_t>(i)];
    const bool culprit = std::ranges::find(finding.culprits, i) != finding.culprits.end();
    if (culprit && finding.what == Finding::What::death) {
      deaths.push_back(
          {.rank = ranks_.rank(i), .how = ranks_.end_of(i, kills_before_, count_kills_())});
    }
    const bool stopped = std::ranges::find(finding.stopped, i) != finding.stopped.end();
    if (stopped && state.process_state.empty()) state.process_state = "is stopped";
  }
  Diagnosis found = diagnose(states, deaths, FlightFile::now());
  if (found.what == Diagnosis::What::nothing) found.what = Diagnosis::What::hang;
  std::vector<std::string>& lines = found.lines;
  for (const int index : finding.culprits) {
    const int rank = ranks_.rank(index);
    if (std::ranges::find(found.culprits, rank) != found.culprits.end()) continue;
    found.culprits.push_back(rank);
    lines.push_back(fmt::format(
        "rank {} holds up the others: {}", rank,
        index < ranks_.count_here() ? peers_.described(index) : "it is on another host"));
  }
  std::ranges::sort(found.culprits);
  if (lines.empty()) lines.emplace_back("all ranks wait for each other");
  for (const FlightState& state : states) {
    std::string error = own_error_text(state);
    if (!error.empty()) lines.push_back(std::move(error));
  }
  const auto here = [this](int index) { return index < ranks_.count_here(); };
  if (std::ranges::any_of(finding.stopped, here)) lines.emplace_back(kDebuggers);
  if (!finding.culprits.empty()) {
    lines.front() = with_host(lines.front(), ranks_.rank(finding.culprits.front()));
  }
  return found;
}

}  // namespace zero
