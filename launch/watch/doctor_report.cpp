// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What zero_doctor prints, for people and for programs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/message_text.h"
#include "base/nanoseconds.h"
#include "launch/flight/flight_folder.h"
#include "launch/process/quantity.h"
#include "launch/watch/doctor.h"
#include "launch/watch/last_words.h"

namespace zero {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kStragglersShown = 5;

/// ", written at 17:29:04, 3 min 07 s ago", of nanoseconds since 1970; with the date if a day is
/// over.
std::string written_text(std::int64_t written) {
  constexpr double kDay = 86400;
  const std::time_t when = written / 1'000'000'000;
  const double age = std::difftime(std::time(nullptr), when);
  std::tm local{};
  std::array<char, 32> text{};
  ::localtime_r(&when, &local);
  std::strftime(text.data(), text.size(), age < kDay ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &local);
  return fmt::format(", written at {}, {} ago", text.data(), duration_text(age));
}

/// "step 812 (ranks 0-2), 811 (rank 3)"
std::string steps_text(const std::vector<FlightState>& states) {
  std::map<std::int64_t, std::vector<int>, std::greater<>> steps;
  for (const FlightState& state : states) steps[state.step].push_back(state.rank);
  std::vector<std::string> parts;
  for (const auto& [step, ranks] : steps) {
    const std::string text = step < 0 ? "before step 1" : fmt::format("in step {}", step);
    parts.push_back(steps.size() == 1 ? text : fmt::format("{} ({})", text, ranks_text(ranks)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string not_begun_text(const Examination& examination) {
  const std::vector<int>& ranks = examination.not_begun;
  if (ranks.empty()) return "";
  return fmt::format("{} not begun: {} half made (a start, or a host that lost its power){}\n",
                     ranks_have(ranks), ranks.size() == 1 ? "its file is" : "their files are",
                     examination.ranks.empty()
                         ? "; ask again in a few seconds; if no process writes them then, start "
                           "the run again"
                         : "");
}

std::string earlier_text(const std::string& folder) {
  if (folder.empty()) return "";
  return fmt::format(
      "files of an earlier run, kept until a later one comes to its first step: zero_doctor {}\n",
      folder);
}

/// Examination::problems, and the files that are half made.
std::vector<std::string> all_problems(const Examination& examination) {
  std::vector<std::string> problems = examination.problems;
  for (const int rank : examination.not_begun) {
    problems.push_back(fmt::format("{}/{}: is half made: the rank has not begun",
                                   examination.folder, flight_file_name(rank)));
  }
  return problems;
}

std::string stragglers_text(const Stragglers& stragglers) {
  if (stragglers.seconds <= 0) return "";
  std::string text = fmt::format("waits: {:.3f} s in {} collectives, by the rank that came last:\n",
                                 stragglers.seconds, stragglers.collectives);
  for (std::size_t i = 0; i < std::min(stragglers.ranks.size(), kStragglersShown); ++i) {
    const Straggler& each = stragglers.ranks[i];
    text += fmt::format("  rank {}: {:.1f} %, last {}\n", each.rank, 100 * each.share,
                        counted(each.last, "time"));
  }
  return text;
}

Json collectives_json(const std::vector<FlightState::Collective>& all) {
  auto json = Json::array();
  for (const FlightState::Collective& each : all) {
    json.push_back({{"name", each.name},
                    {"group", each.group},
                    {"ranks", each.ranks.all()},
                    {"number", each.number},
                    {"bytes", each.bytes},
                    {"enqueued", each.enqueued},
                    {"started", each.started},
                    {"ended", each.ended}});
  }
  return json;
}

Json rank_json(const FlightState& state) {
  return {{"rank", state.rank},
          {"host", state.host},
          {"process", state.process},
          {"process_state", state.process_state},
          {"step", state.step},
          {"mean_step_seconds", state.mean_step_seconds},
          {"phase", state.phase},
          {"compute", state.compute},
          {"changed", state.changed},
          {"disk_calls", {{"begun", state.disk_calls.begun}, {"ended", state.disk_calls.ended}}},
          {"over", state.over},
          {"open", collectives_json(state.open)},
          {"last", collectives_json(state.last)},
          {"last_words", state.last_words.text},
          {"own_error", state.last_words.own_error},
          {"last_words_time", state.last_words_time},
          {"stack", state.stack}};
}

}  // namespace

std::string text_of(const Examination& examination) {
  const std::vector<FlightState>& ranks = examination.ranks;
  if (ranks.empty() && examination.not_begun.empty()) {
    return fmt::format(
        "{}: no flight files: no run that has begun goes on here, and the last that got as far as "
        "step 1 was ended by no fault (unless run.flight_folder was another folder); the newest "
        "checkpoint is of step {}\n",
        examination.folder, examination.newest_checkpoint.value_or(0));
  }
  const std::string not_begun = not_begun_text(examination);
  const std::string earlier = earlier_text(examination.earlier);
  if (ranks.empty()) return fmt::format("{}: {}{}", examination.folder, not_begun, earlier);
  std::string text = fmt::format("{}: {} of {} ranks, {}{}\n", examination.folder, ranks.size(),
                                 ranks.front().world, steps_text(ranks),
                                 examination.goes_on ? "" : written_text(examination.written)) +
                     not_begun;
  for (const std::string& problem : examination.problems) text += problem + "\n";
  if (!examination.missing.empty()) {
    text += fmt::format(
        "{} of {} files are missing or cannot be read: nothing can be said of {}; copy the files "
        "of all hosts here (a rank that ends in good order removes its own)\n",
        examination.missing.size(), ranks.front().world, ranks_text(examination.missing));
  }
  text += last_words_text(ranks);
  if (examination.ended_well()) {
    text += "all ranks with a file here have ended in good order\n";
  } else if (examination.goes_on && examination.diagnosis.what == Diagnosis::What::nothing &&
             examination.diagnosis.lines.empty()) {
    text += "the run goes on: no rank has waited for long\n";
  }
  if (!examination.is_told) {
    for (const std::string& line : examination.diagnosis.lines) text += line + "\n";
  }
  return text + stragglers_text(examination.stragglers) + earlier;
}

nlohmann::ordered_json json_of(const Examination& examination) {
  const Diagnosis& diagnosis = examination.diagnosis;
  const std::vector<FlightState>& ranks = examination.ranks;
  const bool any = !ranks.empty();
  const auto newest = examination.newest_checkpoint;
  const Json none;  // without files, or checkpoints
  Json json{{"folder", examination.folder},
            {"newest_checkpoint", newest ? Json(*newest) : none},
            {"run", any ? Json(fmt::format("{:016x}", ranks.front().run)) : none},
            {"written", any ? Json(to_seconds(examination.written)) : none},
            {"world", any ? ranks.front().world : 0},
            {"goes_on", examination.goes_on},
            {"ended_well", any ? Json(examination.ended_well()) : none},
            {"not_begun", examination.not_begun},
            {"missing", examination.missing},
            {"problems", all_problems(examination)},
            {"fault",
             {{"what", name_of(diagnosis.what)},
              {"culprits", diagnosis.culprits},
              {"waited_seconds", diagnosis.waited_seconds},
              {"lines", diagnosis.lines}}}};
  auto stragglers = Json::array();
  for (const Straggler& each : examination.stragglers.ranks) {
    stragglers.push_back({{"rank", each.rank},
                          {"last", each.last},
                          {"seconds", each.seconds},
                          {"share", each.share}});
  }
  json["stragglers"] = std::move(stragglers);
  auto states = Json::array();
  for (const FlightState& state : ranks) states.push_back(rank_json(state));
  json["ranks"] = std::move(states);
  return json;
}

}  // namespace zero
