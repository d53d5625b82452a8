// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Last words in flight files, also those that are half written, and files that are damaged.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>

#include "launch/flight/flight_file.h"
#include "launch/flight/flight_reader.h"
#include "launch/watch/heartbeat.h"
#include "tests/launch/flight_states.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

TEST(FlightWords, AreReadAsTheyWereWritten) {
  FlightFile file = FlightFile::create("", 0, 1000);
  const FlightReader reader(own_path(file));
  LastWords words = finding_words();
  words.own_error = "no room";
  file.write_last_words(words);
  EXPECT_EQ(reader.read().last_words, words);
  words.culprits.resize(flight::kMostCulprits + 1);
  std::iota(words.culprits.begin(), words.culprits.end(), 7);
  file.write_last_words(words);
  words.culprits.pop_back();
  EXPECT_EQ(reader.read().last_words, words) << "there is no room for more";
  file.write_last_words(outrun_words("no disk"));
  EXPECT_EQ(reader.read().last_words, outrun_words("no disk")) << "nothing of the older ones";
}

TEST(FlightWords, HaveAnErrorWhereTheTextLeavesRoom) {
  FlightFile file = FlightFile::create("", 0, 1, 0, {.sizes = {.words = 16}});
  const FlightReader reader(own_path(file));
  LastWords words = follower_words(std::string(10, 'x'));
  words.own_error = "no room";
  file.write_last_words(words);
  words.own_error = "no roo";
  EXPECT_EQ(reader.read().last_words, words);
  words.text.resize(100, 'x');
  file.write_last_words(words);
  EXPECT_EQ(reader.read().last_words, follower_words(std::string(16, 'x')));
}

/// What a reader makes of finding_words() after `change`.
LastWords words_after(
    const std::function<void(flight::Words& words, std::int32_t& culprit)>& change) {
  FlightFile file = FlightFile::create("", 0, 8);
  file.write_last_words(finding_words());
  const MappedFile map(file.descriptor(), file.bytes(), MappedFile::Access::write, "file");
  change(reinterpret_cast<flight::Header*>(map.begin())->words,
         *reinterpret_cast<std::int32_t*>(map.begin() + flight::Offsets({}).culprits));
  return FlightReader(own_path(file)).read().last_words;
}

/// What a reader finds of a rank that had left `before`, and was ended at the first byte of the
/// text of `after`: the file is too short for it, which is a signal.
LastWords words_ended_between(const LastWords& before, const LastWords& after) {
  constexpr int kCut = 7;
  const Scratch folder;
  const std::string path = folder.path("rank_00000.flight");
  FlightFile file = FlightFile::create(path, 0, 8);
  if (before.kind != LastWords::Kind::none) file.write_last_words(before);
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t text = flight::Offsets({}).words;
  EXPECT_EQ(::truncate(path.c_str(), static_cast<off_t>(text / page * page)), 0);
  const auto write_and_end = [&] {
    std::signal(SIGBUS, [](int) { ::_exit(kCut); });
    file.write_last_words(after);
    ::_exit(0);
  };
  EXPECT_EXIT(write_and_end(), ::testing::ExitedWithCode(kCut), "") << "it ended elsewhere";
  EXPECT_EQ(::truncate(path.c_str(), static_cast<off_t>(file.bytes())), 0);
  return FlightReader(path).read().last_words;
}

// Of a rank that was killed meanwhile others tell.
TEST(FlightWords, ThatAreBeingWrittenAreNone) {
  EXPECT_EQ(words_after([](flight::Words& words, std::int32_t&) { words.kind = 0; }), LastWords());
  for (const LastWords& before : {LastWords(), outrun_words("no room"), follower_words()}) {
    EXPECT_EQ(words_ended_between(before, finding_words()), LastWords()) << before.text;
  }
}

TEST(FlightWords, ThatNoRankLeavesAreNotBelieved) {
  using flight::Words;
  EXPECT_EQ(words_after([](Words& words, std::int32_t&) { words.kind = 8; }), LastWords());
  LastWords expected = finding_words();
  expected.culprits.clear();
  for (const std::int32_t rank : {-1, 8, 3, 4}) {  // of no job, twice, behind a larger one
    EXPECT_EQ(words_after([&](Words&, std::int32_t& culprit) { culprit = rank; }), expected);
  }
  EXPECT_EQ(words_after([](Words& words, std::int32_t&) { words.culprits = 257; }), expected);
  expected = finding_words();
  expected.what = FoundFault::nothing;
  EXPECT_EQ(words_after([](Words& words, std::int32_t&) { words.what = 5; }), expected);
  const LastWords longer = words_after([](Words& words, std::int32_t&) { words.text = ~0U; });
  EXPECT_LE(longer.text.size() + longer.own_error.size(), flight::Sizes().words);
}

// Its host would be silent.
TEST(DamagedFlightFile, IsNoObstacleToAHeartbeat) {
  FlightFile file = FlightFile::create("", 0, 8);
  file.phase(7, "backward");
  file.write_last_words(finding_words());
  file.submit({.group = file.add_group("shard", {2, 3, 5}), .name = "h.0"});
  const MappedFile map(file.descriptor(), file.bytes(), MappedFile::Access::write, "file");
  const flight::Offsets at({});
  const auto ranks_at = [&](std::uint64_t offset) {
    return reinterpret_cast<std::int32_t*>(map.begin() + offset);
  };
  reinterpret_cast<flight::Header*>(map.begin())->step = -2;
  ranks_at(at.culprits)[1] = ranks_at(at.culprits)[0];
  ranks_at(at.group_ranks)[1] = ranks_at(at.group_ranks)[0];
  reinterpret_cast<flight::Record*>(map.begin() + at.records)[1].number = ~std::uint64_t{0};
  const FlightState state = FlightReader(own_path(file)).read();
  ASSERT_EQ(state.open.size(), 1U) << "the second record, behind that of the phase";
  Heartbeat beat{.now = 1};
  beat.ranks.push_back({.changed = 1, .state = state});
  const Heartbeat heard = read_heartbeat(heartbeat_text(beat), {0}, 8);
  EXPECT_EQ(heard.ranks.front().state->step, -1);
  EXPECT_TRUE(heard.ranks.front().state->open.front().ranks.empty());
  EXPECT_EQ(heard.ranks.front().state->last_words.text, finding_words().text);
}

}  // namespace
}  // namespace zero::testing
