// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/heartbeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/consecutive.h"
#include "base/error.h"
#include "launch/flight/flight_layout.h"
#include "tests/launch/fake_ranks.h"
#include "tests/launch/flight_states.h"

namespace zero {
namespace {

using testing::collective;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::vector<int> kRanks{4, 5};
constexpr int kWorld = 8;

FlightState busy(int rank) {
  FlightState state;
  state.rank = rank;
  state.world = kWorld;
  state.host = "b";
  state.step = 812;
  state.mean_step_seconds = 0.5;
  state.phase = "backward";
  state.compute = "backward h.7";
  state.changed = 11;
  state.disk_calls = {.begun = 9, .ended = 7};
  state.open = {collective(1841, {1, 3, 5, 7}), collective(7, {4, 5, 7, 0, 1}, "odd")};
  state.last = {collective(1840, {0, 1, 2, 3, 4, 5, 6, 7})};
  state.last[0].ended = 9;
  state.open[1].disk_decides = true;
  state.stack = "host thread:\n  zero::loop()\n";
  state.last_words = testing::finding_words();
  state.last_words.own_error = "no room";
  state.last_words_time = 10;
  return state;
}

Heartbeat whole() {
  Heartbeat heartbeat{.now = 12, .leaves = true};
  heartbeat.told = Heartbeat::Told{.rank = 5, .host = "b", .of_signal = true};
  heartbeat.ranks = {{.changed = 11,
                      .activity = host::Activity{.stopped = true,
                                                 .in_device = true,
                                                 .cpu = 13,
                                                 .resident = 14,
                                                 .busiest = {.id = 15,
                                                             .runnable = true,
                                                             .cpu = 16,
                                                             .kernel = 5,
                                                             .faults = 6,
                                                             .switches = 7}},
                      .state = busy(4)},
                     {.changed = 7}};
  return heartbeat;
}

std::string refusal_of(const std::string& text) {
  try {
    static_cast<void>(read_heartbeat(text, kRanks, kWorld));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Heartbeat, ArrivesAsItWasSent) {
  const Heartbeat sent = whole();
  const Heartbeat got = read_heartbeat(heartbeat_text(sent), kRanks, kWorld);
  EXPECT_EQ(got.now, 12);
  EXPECT_TRUE(got.leaves);
  EXPECT_EQ(got.told, sent.told);
  ASSERT_THAT(got.ranks, SizeIs(2));
  EXPECT_EQ(got.ranks[1].changed, 7);
  EXPECT_FALSE(got.ranks[1].activity);
  EXPECT_FALSE(got.ranks[1].state);
  ASSERT_TRUE(got.ranks[0].activity);
  EXPECT_TRUE(got.ranks[0].activity->stopped);
  EXPECT_FALSE(got.ranks[0].activity->runnable);
  EXPECT_TRUE(got.ranks[0].activity->in_device);
  EXPECT_EQ(got.ranks[0].activity->cpu, 13);
  EXPECT_EQ(got.ranks[0].activity->resident, 14);
  const host::Thread& busiest = got.ranks[0].activity->busiest;
  EXPECT_EQ(busiest.id, 15);
  EXPECT_TRUE(busiest.runnable);
  EXPECT_EQ(busiest.cpu, 16);
  EXPECT_EQ(busiest.kernel, 5);
  EXPECT_EQ(busiest.faults, 6);
  EXPECT_EQ(busiest.switches, 7);
  ASSERT_TRUE(got.ranks[0].state);
  const FlightState& state = *got.ranks[0].state;
  const FlightState expected = busy(4);
  EXPECT_EQ(state.rank, 4);
  EXPECT_EQ(state.host, "b");
  EXPECT_EQ(state.step, 812);
  EXPECT_EQ(state.mean_step_seconds, 0.5);
  EXPECT_EQ(state.phase, "backward");
  EXPECT_EQ(state.compute, "backward h.7");
  EXPECT_EQ(state.changed, 11);
  EXPECT_EQ(state.disk_calls, expected.disk_calls);
  EXPECT_EQ(state.stack, expected.stack);
  EXPECT_EQ(state.last_words, expected.last_words);
  EXPECT_EQ(state.last_words_time, 10);
  ASSERT_THAT(state.open, SizeIs(2));
  EXPECT_THAT(state.open[0].ranks, ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(state.open[1].ranks, ElementsAre(4, 5, 7, 0, 1));
  EXPECT_EQ(state.open[0].number, 1841U);
  EXPECT_EQ(state.open[0].name, "all_gather(h.0)");
  EXPECT_EQ(state.open[0].started, 2);
  EXPECT_FALSE(state.open[0].disk_decides);
  EXPECT_TRUE(state.open[1].disk_decides);
  ASSERT_THAT(state.last, SizeIs(1));
  EXPECT_THAT(state.last[0].ranks, SizeIs(kWorld));
  EXPECT_EQ(state.last[0].ended, 9);
}

TEST(Heartbeat, OneThatIsCutAnywhereIsRefused) {
  const std::string text = heartbeat_text(whole());
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_THAT(refusal_of(text.substr(0, size)), HasSubstr("no heartbeat")) << size;
  }
}

// From a rank of another build, or of another mind: an error, and no more.
TEST(Heartbeat, WhatNoHostSaysIsRefused) {
  const std::string text = heartbeat_text(whole());
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"now\":12", "\"now\":-1"},
           {"\"now\":12", "\"now\":1e300"},
           {"\"now\":12", "\"now\":18446744073709551615"},
           {"\"now\":12", "\"now\":\"12\""},
           {"\"step\":812", "\"step\":-2"},
           {"[5,\"b\",true]", "[8,\"b\",true]"},
           {"[5,\"b\",true]", "[5]"},
           {"[[1,2,4]]", "[[1,2,5]]"},
           {"[[1,2,4]]", "[[1,2,9999999999]]"},
           {"[[1,2,4]]", "[[1,0,4]]"},
           {"[[1,2,4]]", "[[-1,2,2]]"},
           {"[[1,2,4]]", "[1,2,4]"},
           {"\"phase\":\"backward\"", "\"phase\":7"},
           {"\"over\":false", "\"over\":0"},
           {"\"disk\":[9,7]", "\"disk\":[9,-7]"},
           {"\"disk\":[9,7]", "\"disk\":[9]"},
           {",15,16,5,6,7]", "]"},
           {",15,16,5,6,7]", ",15,16,5,6]"},
           {",15,16,5,6,7]", ",15,16,5,6,7,8]"},
           {",15,16,5,6,7]", ",15,16,-5,6,7]"},
           {",15,16,5,6,7]", ",-1,16,5,6,7]"},
           {",15,16,5,6,7]", ",4294967296,16,5,6,7]"},
           {"\"open\":[", "\"open\":7,\"more\":["},
           {"\"words\":[6,", "\"words\":[0,"},
           {"\"words\":[6,", "\"words\":[8,"},
           {"\"words\":[6,", "\"words\":[\"6\","},
           {"\"words\":[6,", "\"words\":[6],\"more\":["},
           {"\"words\":[6,", "\"words\":\"\",\"more\":["},
           {"\"no room\",3,", "\"no room\",5,"},
           {"\"no room\",3,", "3,3,"},
           {"[[1,2,2],[6,1,1]]", "[[1,2,2],[8,1,1]]"},
           {"[[1,2,2],[6,1,1]]", "[[1,2,2],[-1,1,1]]"},
           {"[[1,2,2],[6,1,1]]", "[[1,2,2],[6,1,7]]"},
           {",3.25]", ",\"3.25\"]"},
           {"\"ranks\":[{", "\"ranks\":[{},{"},
           {"\"changed\":7", "\"other\":7"}}) {
    EXPECT_NE(refusal_of(with(text, from, to)), "") << to;
  }
  for (const std::string& other :
       {std::string(), std::string("7"), std::string("[]"), std::string("{}"), std::string("null"),
        std::string(500'000, '['), std::string(1000, '\0'),
        std::string(kMostHeartbeatBytes + 1, ' ')}) {
    EXPECT_NE(refusal_of(other), "") << other.size();
  }
}

TEST(Heartbeat, WithMoreCulpritsThanAFileHasRoomForIsRefused) {
  Heartbeat heartbeat = whole();
  std::vector<int>& culprits = heartbeat.ranks[0].state->last_words.culprits;
  const auto read = [&] { return read_heartbeat(heartbeat_text(heartbeat), kRanks, 1000); };
  culprits = consecutive(0, flight::kMostCulprits);
  EXPECT_EQ(read().ranks[0].state->last_words.culprits, culprits);
  culprits.push_back(999);
  EXPECT_THROW(read(), Error);
}

// The figures of docs/watchdog.md.
TEST(Heartbeat, OfEightRanksIsShort) {
  constexpr std::int64_t kNow = 123'456'789'012'345;  // a host that runs for 34 hours
  Heartbeat heartbeat{.now = kNow};
  heartbeat.ranks.resize(8, {.changed = kNow});
  EXPECT_EQ(heartbeat_text(heartbeat).size(), 272U);
  const std::vector<int> ranks = consecutive(0, 16);
  FlightState::Collective call{.name = "reduce_scatter(h.7)",
                               .group = "shard",
                               .ranks = ranks,
                               .number = 1841,
                               .bytes = 14'174'208,
                               .enqueued = kNow,
                               .started = kNow};
  FlightState state;
  state.host = "node-17";
  state.step = 812;
  state.mean_step_seconds = 0.8125;
  state.phase = "backward";
  state.compute = "backward h.7";
  const auto bytes = [&] {
    for (Heartbeat::Rank& rank : heartbeat.ranks) rank.state = state;
    return heartbeat_text(heartbeat).size();
  };
  EXPECT_EQ(bytes(), 1704U);
  state.open = {call};
  call.ended = kNow;
  state.last = {call};
  EXPECT_EQ(bytes(), 3352U);
}

TEST(Heartbeat, TextsOfOthersAreSafeToShow) {
  Heartbeat heartbeat = whole();
  heartbeat.ranks[0].state->last_words.text = "a\x1b[2Jb\xff";
  heartbeat.ranks[0].state->last_words.own_error = "\x1b[2J";
  heartbeat.ranks[0].state->phase = "line\nline";
  const Heartbeat got = read_heartbeat(heartbeat_text(heartbeat), kRanks, kWorld);
  const LastWords& words = got.ranks[0].state->last_words;
  EXPECT_EQ((words.text + words.own_error).find('\x1b'), std::string::npos);
  EXPECT_EQ(got.ranks[0].state->phase.find('\n'), std::string::npos);
}

TEST(Heartbeat, ALongOneLeavesOutStacksThenStates) {
  Heartbeat heartbeat = whole();
  heartbeat.ranks[0].state->stack = std::string(kMostHeartbeatBytes, 's');
  Heartbeat got = read_heartbeat(heartbeat_text(heartbeat), kRanks, kWorld);
  ASSERT_TRUE(got.ranks[0].state);
  EXPECT_THAT(got.ranks[0].state->stack, IsEmpty());
  EXPECT_EQ(got.ranks[0].state->step, 812);
  heartbeat.ranks[0].state->last_words.text = std::string(kMostHeartbeatBytes, 'w');
  got = read_heartbeat(heartbeat_text(heartbeat), kRanks, kWorld);
  EXPECT_FALSE(got.ranks[0].state);
  EXPECT_EQ(got.ranks[0].changed, 11);
}

}  // namespace
}  // namespace zero
