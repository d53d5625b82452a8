// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/heartbeat.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/flight/flight_layout.h"

namespace zero {
namespace {

using nlohmann::json;
using Collective = FlightState::Collective;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
/// Of a rank that are open, or the last of their groups.
constexpr std::size_t kMostCollectives = 4096;
constexpr std::size_t kActivityValues = 10;

/// Ranks as [first, step, count] of each run of equal steps: groups of a mesh have one.
json runs_of(const std::vector<int>& ranks) {
  json runs = json::array();
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    const int step = end < ranks.size() ? ranks[end] - ranks[i] : 1;
    while (end < ranks.size() && ranks[end] - ranks[end - 1] == step) ++end;
    runs.push_back({ranks[i], step, end - i});
    i = end;
  }
  return runs;
}

json to_json(const Collective& one) {
  return {one.name,    one.group, runs_of(one.ranks.all()), one.number, one.bytes, one.enqueued,
          one.started, one.ended, one.disk_decides};
}

json to_json(const std::vector<Collective>& some) {
  json all = json::array();
  for (const Collective& one : some) all.push_back(to_json(one));
  return all;
}

/// None are an empty array.
json to_json(const LastWords& words) {
  if (words.kind == LastWords::Kind::none) return json::array();
  return {words.kind,          words.text, words.own_error, words.what, runs_of(words.culprits),
          words.waited_seconds};
}

json to_json(const FlightState& state) {
  return {{"host", state.host},
          {"step", state.step},
          {"mean", state.mean_step_seconds},
          {"phase", state.phase},
          {"compute", state.compute},
          {"over", state.over},
          {"disk", {state.disk_calls.begun, state.disk_calls.ended}},
          {"open", to_json(state.open)},
          {"last", to_json(state.last)},
          {"stack", state.stack},
          {"words", to_json(state.last_words)},
          {"words_time", state.last_words_time}};
}

json to_json(const Heartbeat::Rank& rank) {
  json one = {{"changed", rank.changed}};
  if (rank.activity) {
    const host::Thread& busiest = rank.activity->busiest;
    one["activity"] = {rank.activity->stopped,
                       rank.activity->runnable,
                       rank.activity->in_device,
                       rank.activity->cpu,
                       rank.activity->resident,
                       busiest.id,
                       busiest.cpu,
                       busiest.kernel,
                       busiest.faults,
                       busiest.switches};
  }
  if (rank.state) one["state"] = to_json(*rank.state);
  return one;
}

std::string whole_text(const Heartbeat& heartbeat) {
  json all = {{"now", heartbeat.now}, {"leaves", heartbeat.leaves}, {"ranks", json::array()}};
  if (heartbeat.told) {
    all["told"] = {heartbeat.told->rank, heartbeat.told->host, heartbeat.told->of_signal};
  }
  for (const Heartbeat::Rank& rank : heartbeat.ranks) all["ranks"].push_back(to_json(rank));
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::int64_t whole(const json& value, std::int64_t least, std::int64_t most) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMost));
  const std::int64_t number = fits ? value.get<std::int64_t>() : least;
  ZERO_CHECK(fits && number >= least && number <= most,
             "a heartbeat with a value that is no whole number from {} to {}", least, most);
  return number;
}

std::int64_t time_in(const json& value) { return whole(value, 0, flight::kLatest); }

std::string name_in(const json& value) {
  return printable_line(value.get_ref<const std::string&>(), flight::kNameBytes * 2);
}

std::string text_in(const json& value) {
  return printable_text(value.get_ref<const std::string&>());
}

std::vector<int> ranks_in(const json& runs, int world) {
  std::vector<int> ranks;
  for (const json& run : runs) {
    const std::int64_t first = whole(run.at(0), 0, world - 1);
    const std::int64_t step = whole(run.at(1), -world, world);
    ZERO_CHECK(step != 0, "a heartbeat with a group that has one rank twice");
    const std::int64_t count = whole(run.at(2), 1, world - std::ssize(ranks));
    const std::int64_t last = first + step * (count - 1);
    ZERO_CHECK(last >= 0 && last < world, "a heartbeat with rank {} of {}", last, world);
    for (std::int64_t i = 0; i < count; ++i) ranks.push_back(static_cast<int>(first + step * i));
  }
  return ranks;
}

Collective collective_in(const json& value, int world) {
  return {.name = name_in(value.at(0)),
          .group = name_in(value.at(1)),
          .ranks = ranks_in(value.at(2), world),
          .number = static_cast<std::uint64_t>(whole(value.at(3), 0, kMost)),
          .bytes = whole(value.at(4), 0, kMost),
          .enqueued = time_in(value.at(5)),
          .started = time_in(value.at(6)),
          .ended = time_in(value.at(7)),
          .disk_decides = value.at(8).get<bool>()};
}

std::vector<Collective> collectives_in(const json& values, int world) {
  ZERO_CHECK(values.size() <= kMostCollectives, "a heartbeat with {} collectives of a rank",
             values.size());
  std::vector<Collective> all;
  for (const json& value : values) all.push_back(collective_in(value, world));
  return all;
}

template <typename Enum>
Enum enum_in(const json& value, Enum first, Enum last) {
  return static_cast<Enum>(
      whole(value, static_cast<std::int64_t>(first), static_cast<std::int64_t>(last)));
}

LastWords words_in(const json& value, int world) {
  if (value.is_array() && value.empty()) return {};
  LastWords words{.kind = enum_in(value.at(0), LastWords::Kind::own_error, LastWords::kLastKind),
                  .text = text_in(value.at(1)),
                  .own_error = text_in(value.at(2)),
                  .what = enum_in(value.at(3), FoundFault::nothing, FoundFault::mismatch),
                  .culprits = ranks_in(value.at(4), world),
                  .waited_seconds = std::clamp(value.at(5).get<double>(), 0.0, 1e9)};
  ZERO_CHECK(words.culprits.size() <= flight::kMostCulprits, "a heartbeat with {} culprits",
             words.culprits.size());
  return words;
}

FlightState state_in(const json& value, int rank, int world) {
  FlightState state;
  state.rank = rank;
  state.world = world;
  state.host = name_in(value.at("host"));
  state.step = whole(value.at("step"), -1, kMost);
  state.mean_step_seconds = std::clamp(value.at("mean").get<double>(), 0.0, 1e9);
  state.phase = name_in(value.at("phase"));
  state.compute = name_in(value.at("compute"));
  state.over = value.at("over").get<bool>();
  state.disk_calls = {.begun = whole(value.at("disk").at(0), 0, kMost),
                      .ended = whole(value.at("disk").at(1), 0, kMost)};
  state.open = collectives_in(value.at("open"), world);
  state.last = collectives_in(value.at("last"), world);
  state.stack = text_in(value.at("stack"));
  state.last_words = words_in(value.at("words"), world);
  state.last_words_time = time_in(value.at("words_time"));
  return state;
}

/// The thread whose values begin at this place. It runs: others are not sent.
host::Thread thread_in(const json& values, std::size_t first) {
  const std::int64_t id = whole(values.at(first), 0, std::numeric_limits<int>::max());
  return {.id = static_cast<int>(id),
          .runnable = id != 0,
          .cpu = whole(values.at(first + 1), 0, kMost),
          .kernel = whole(values.at(first + 2), 0, kMost),
          .faults = whole(values.at(first + 3), 0, kMost),
          .switches = whole(values.at(first + 4), 0, kMost)};
}

Heartbeat::Rank rank_in(const json& value, int rank, int world) {
  Heartbeat::Rank one{.changed = time_in(value.at("changed"))};
  if (const auto activity = value.find("activity"); activity != value.end()) {
    ZERO_CHECK(activity->size() == kActivityValues,
               "a heartbeat with {} values of what a process does, expected {}", activity->size(),
               kActivityValues);
    one.activity = host::Activity{.stopped = activity->at(0).get<bool>(),
                                  .runnable = activity->at(1).get<bool>(),
                                  .in_device = activity->at(2).get<bool>(),
                                  .cpu = whole(activity->at(3), 0, kMost),
                                  .resident = whole(activity->at(4), 0, kMost),
                                  .busiest = thread_in(*activity, 5)};
  }
  if (const auto state = value.find("state"); state != value.end()) {
    one.state = state_in(*state, rank, world);
    one.state->changed = one.changed;
  }
  return one;
}

}  // namespace

std::string heartbeat_text(const Heartbeat& heartbeat) {
  std::string text = whole_text(heartbeat);
  if (text.size() <= kMostHeartbeatBytes) return text;
  Heartbeat shorter = heartbeat;
  for (Heartbeat::Rank& rank : shorter.ranks) {
    if (rank.state) rank.state->stack.clear();
  }
  text = whole_text(shorter);
  if (text.size() <= kMostHeartbeatBytes) return text;
  for (Heartbeat::Rank& rank : shorter.ranks) rank.state.reset();
  return whole_text(shorter);
}

Heartbeat read_heartbeat(std::string_view text, const std::vector<int>& ranks, int world) {
  ZERO_CHECK(text.size() <= kMostHeartbeatBytes, "a heartbeat of {} bytes, expected at most {}",
             text.size(), kMostHeartbeatBytes);
  try {
    const json all = json::parse(text);  // not by recursion, however deep a text is nested
    Heartbeat heartbeat{.now = time_in(all.at("now")), .leaves = all.at("leaves").get<bool>()};
    if (const auto told = all.find("told"); told != all.end()) {
      heartbeat.told = Heartbeat::Told{.rank = static_cast<int>(whole(told->at(0), 0, world - 1)),
                                       .host = name_in(told->at(1)),
                                       .of_signal = told->at(2).get<bool>()};
    }
    const json& some = all.at("ranks");
    ZERO_CHECK(some.is_array() && some.size() == ranks.size(),
               "a heartbeat of {} ranks, expected {}", some.size(), ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      heartbeat.ranks.push_back(rank_in(some[i], ranks[i], world));
    }
    return heartbeat;
  } catch (const json::exception& error) {
    fail("no heartbeat: {}", printable_line(error.what(), 200));
  }
}

}  // namespace zero
