// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Last words in flight files.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "launch/flight/flight_file.h"
#include "launch/flight/flight_reader.h"
#include "tests/launch/flight_states.h"

namespace zero::testing {
namespace {

TEST(FlightWords, AreReadAsTheyWereWritten) {
  FlightFile file = FlightFile::create("", 0, 1000);
  const FlightReader reader(own_path(file));
  LastWords words = finding_words();
  words.own_error = "no room";
  file.write_last_words(words);
  EXPECT_EQ(reader.read().last_words, words);
  words.culprits.resize(flight::kMostCulprits + 1, 999);
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

// Of a rank that was killed meanwhile others tell.
TEST(FlightWords, ThatAreBeingWrittenAreNone) {
  EXPECT_EQ(words_after([](flight::Words& words, std::int32_t&) { words.kind = 0; }), LastWords());
}

TEST(FlightWords, ThatNoRankLeavesAreNotBelieved) {
  using flight::Words;
  EXPECT_EQ(words_after([](Words& words, std::int32_t&) { words.kind = 8; }), LastWords());
  LastWords expected = finding_words();
  expected.culprits.clear();
  for (const std::int32_t rank : {-1, 8}) {
    EXPECT_EQ(words_after([&](Words&, std::int32_t& culprit) { culprit = rank; }), expected);
  }
  EXPECT_EQ(words_after([](Words& words, std::int32_t&) { words.culprits = 257; }), expected);
  expected = finding_words();
  expected.what = FoundFault::nothing;
  EXPECT_EQ(words_after([](Words& words, std::int32_t&) { words.what = 5; }), expected);
  const LastWords longer = words_after([](Words& words, std::int32_t&) { words.text = ~0U; });
  EXPECT_LE(longer.text.size() + longer.own_error.size(), flight::Sizes().words);
}

}  // namespace
}  // namespace zero::testing
