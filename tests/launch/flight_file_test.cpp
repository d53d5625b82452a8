// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/flight_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/host.h"
#include "collectives/operation.h"
#include "launch/flight/flight_reader.h"
#include "tests/errors.h"
#include "tests/launch/flight_states.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr flight::Sizes kSmall{
    .records = 8, .names = 4, .groups = 2, .group_ranks = 5, .words = 16, .stack = 32};

FlightFile::Submission gather_of(std::uint32_t group, std::string_view unit) {
  return {.operation = static_cast<std::uint8_t>(Operation::all_gather),
          .group = group,
          .name = unit,
          .bytes = 4096};
}

TEST(FlightFile, ShowsARankThatHasJustBegun) {
  const FlightFile file = FlightFile::create("", 3, 8, 77);
  const FlightState state = FlightReader(own_path(file)).read();
  EXPECT_EQ(state.rank, 3);
  EXPECT_EQ(state.world, 8);
  EXPECT_EQ(state.run, 77U);
  EXPECT_EQ(state.process, ::getpid());
  EXPECT_EQ(state.host, host_name());
  EXPECT_EQ(state.boot, boot_id());
  EXPECT_EQ(state.step, -1);
  EXPECT_EQ(state.phase, "");
  EXPECT_EQ(state.compute, "");
  EXPECT_GT(state.changed, 0);
  EXPECT_FALSE(state.over);
  EXPECT_THAT(state.open, IsEmpty());
  EXPECT_THAT(state.last, IsEmpty());
  EXPECT_EQ(state.stack, "");
  EXPECT_EQ(state.last_words, LastWords());
  EXPECT_LT(file.bytes(), std::size_t{1} << 20) << "of 16 MiB that a rank may take";
  EXPECT_GE(flight::Sizes().records, 4096U);
}

TEST(FlightFile, ShowsStepPhaseUnitAndCollectivesAsTheyGo) {
  FlightFile file = FlightFile::create("", 1, 4);
  const FlightReader reader(own_path(file));
  const std::uint32_t shard = file.add_group("shard", {0, 1, 2, 3});
  const std::uint32_t tensor = file.add_group("tensor", {1, 2});
  file.phase(812, "backward");
  file.compute("h.7", Phase::backward);
  file.mean_step(0.25);
  const auto first = file.submit(gather_of(shard, "h.6"));
  const auto second = file.submit(gather_of(shard, "h.5"));
  const auto other = file.submit({.operation = static_cast<std::uint8_t>(Operation::all_reduce),
                                  .group = tensor,
                                  .name = "h.7"});
  file.started(first, 100);
  FlightState state = reader.read();
  EXPECT_EQ(state.step, 812);
  EXPECT_EQ(state.phase, "backward");
  EXPECT_EQ(state.compute, "backward h.7");
  EXPECT_NEAR(state.mean_step_seconds, 0.25, 1e-9);
  ASSERT_EQ(state.open.size(), 3U);
  EXPECT_EQ(state.open[0].name, "all_gather(h.6)");
  EXPECT_EQ(state.open[0].group, "shard");
  EXPECT_THAT(state.open[0].ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(state.open[0].number, 1U);
  EXPECT_EQ(state.open[0].bytes, 4096);
  EXPECT_GT(state.open[0].enqueued, 0);
  EXPECT_EQ(state.open[0].started, 100);
  EXPECT_EQ(state.open[0].ended, 0);
  EXPECT_EQ(state.open[1].number, 2U);
  EXPECT_EQ(state.open[1].started, 0);
  EXPECT_EQ(state.open[2].name, "all_reduce(h.7)");
  EXPECT_EQ(state.open[2].number, 1U) << "each group counts its own";
  EXPECT_THAT(state.last, IsEmpty());

  file.ended(first, 200);
  file.ended(other, 300);
  state = reader.read();
  ASSERT_EQ(state.open.size(), 1U);
  EXPECT_EQ(state.open[0].name, "all_gather(h.5)");
  ASSERT_EQ(state.last.size(), 2U);
  EXPECT_EQ(state.last[0].name, "all_gather(h.6)");
  EXPECT_EQ(state.last[0].ended, 200);
  EXPECT_EQ(state.last[1].group, "tensor");
  file.ended(second, 400);
  state = reader.read();
  EXPECT_THAT(state.open, IsEmpty());
  EXPECT_EQ(state.last[0].number, 2U) << "the newest that has ended";
  file.end();
  EXPECT_TRUE(reader.read().over);
}

TEST(FlightFile, PublishesWhenItChanged) {
  FlightFile file = FlightFile::create("", 0, 2);
  const FlightReader reader(own_path(file));
  const std::int64_t before = FlightFile::now();
  file.compute("h.0", Phase::forward);
  EXPECT_GE(reader.changed(), before);
  const auto ticket = file.submit(gather_of(file.add_group("shard", {0, 1}), "h.0"));
  const std::int64_t later = FlightFile::now() + 1'000'000'000;
  file.ended(ticket, later);
  EXPECT_EQ(reader.changed(), later);
  file.started(ticket, 5);
  EXPECT_EQ(reader.changed(), later) << "never goes back";
  file.write_last_words(signal_words());
  EXPECT_EQ(reader.changed(), later) << "words are not the rank's own progress";
  EXPECT_GE(reader.read().last_words_time, before);
}

TEST(FlightFile, KeepsTheNewestRecordsInOrder) {
  FlightFile file = FlightFile::create("", 0, 2, 0, {.sizes = kSmall});
  const FlightReader reader(own_path(file));
  const std::uint32_t group = file.add_group("shard", {0, 1});
  file.phase(1, "forward");
  std::vector<FlightFile::Ticket> tickets;
  for (int i = 0; i < 20; ++i) tickets.push_back(file.submit(gather_of(group, "h.0")));
  const std::vector<FlightRecord> records = reader.records();
  ASSERT_EQ(records.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(records[i].collective.number, 13 + i);
  EXPECT_EQ(records[0].step, 1);
  EXPECT_EQ(records[0].name, "all_gather(h.0)");

  file.started(tickets[0], 5);  // long overwritten
  file.ended(tickets[0], 6);
  EXPECT_EQ(file.enqueued(tickets[0]), 0);
  for (const FlightRecord& each : reader.records()) {
    EXPECT_EQ(each.collective.started + each.collective.ended, 0);
  }
  EXPECT_EQ(reader.read().open.size(), 8U);
}

TEST(FlightFile, TellsMarksFromCollectives) {
  FlightFile file = FlightFile::create("", 0, 2);
  file.phase(-1, "load");
  file.phase(4, "forward");
  file.compute("wte", Phase::forward);
  const std::uint32_t group = file.add_group("world", {0, 1});
  file.submit({.kind = flight::Kind::host_call, .group = group, .name = "split"});
  const FlightReader reader(own_path(file));
  const std::vector<FlightRecord> records = reader.records();
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[0].kind, flight::Kind::phase);
  EXPECT_EQ(records[0].step, -1);
  EXPECT_EQ(records[1].name, "forward");
  EXPECT_EQ(records[1].step, 4);
  EXPECT_EQ(records[2].name, "forward wte");
  EXPECT_EQ(records[2].kind, flight::Kind::compute);
  EXPECT_EQ(records[3].name, "split");
  EXPECT_EQ(records[3].group, 0U);
  EXPECT_EQ(reader.groups().at(0).name, "world");
  EXPECT_EQ(reader.read().open.at(0).name, "split");
}

TEST(FlightFile, WithoutRoomNamesAreOthersAndGroupsAreLeftOut) {
  FlightFile file = FlightFile::create("", 0, 8, 0, {.sizes = kSmall});
  const std::uint32_t first = file.add_group("", {});
  const std::uint32_t second = file.add_group("b", {0, 1, 2, 3});
  EXPECT_EQ(file.add_group("c", {0, 1}), FlightFile::kNoGroup);
  EXPECT_EQ(file.submit(gather_of(FlightFile::kNoGroup, "x")), 0U);
  file.name_group(first, "a", {4, 5});  // one rank of room is left
  file.name_group(FlightFile::kNoGroup, "z", {1});
  file.submit(gather_of(second, std::string(100, 'n')));
  file.submit(gather_of(second, "one too many"));
  const FlightReader reader(own_path(file));
  const std::vector<FlightGroup> groups = reader.groups();
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].name, "a");
  EXPECT_THAT(groups[0].ranks, IsEmpty());
  EXPECT_THAT(groups[1].ranks, ElementsAre(0, 1, 2, 3));
  const FlightState state = reader.read();
  EXPECT_EQ(state.open.at(0).name, "all_gather(" + std::string(63, 'n') + ")");
  EXPECT_EQ(state.open.at(1).name, "all_gather(others)");
}

TEST(FlightFile, CutsTextsAndMakesThemPrintable) {
  FlightFile file = FlightFile::create("", 0, 1, 0, {.sizes = kSmall});
  const FlightReader reader(own_path(file));
  file.write_last_words(follower_words("a\033[2Jb"));
  file.write_stack("#0 main\n#1 start\n");
  EXPECT_EQ(reader.read().last_words, follower_words("a?[2Jb"));
  EXPECT_EQ(reader.read().stack, "#0 main\n#1 start\n");
  file.write_last_words(follower_words(std::string(100, 'x')));
  EXPECT_EQ(reader.read().last_words, follower_words(std::string(16, 'x')));
}

TEST(FlightFile, ARecordThatIsBeingWrittenIsLeftOut) {
  FlightFile file = FlightFile::create("", 0, 2);
  const std::uint32_t group = file.add_group("shard", {0, 1});
  for (int i = 0; i < 3; ++i) file.submit(gather_of(group, "h.0"));
  // What a rank killed in the middle of a record leaves.
  const MappedFile map(file.descriptor(), file.bytes(), MappedFile::Access::write, "file");
  auto* const records =
      reinterpret_cast<flight::Record*>(map.begin() + flight::Offsets(flight::Sizes()).records);
  flight::write(records[1].ticket, std::uint64_t{0});
  const FlightReader reader(own_path(file));
  const std::vector<FlightRecord> kept = reader.records();
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].collective.number, 1U);
  EXPECT_EQ(kept[1].collective.number, 3U);
  EXPECT_EQ(reader.read().open.size(), 2U);
}

TEST(FlightFile, ReadersNeverSeePartsOfTwoRecords) {
  FlightFile file = FlightFile::create("", 0, 2, 0, {.sizes = kSmall});
  const FlightReader reader(own_path(file));
  const std::uint32_t group = file.add_group("shard", {0, 1});
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (std::int64_t i = 1; i <= 20000; ++i) {
      const auto ticket = file.submit({.group = group, .name = "x", .bytes = i});
      file.started(ticket, i);
      file.ended(ticket, i);
    }
    done = true;
  });
  do {
    for (const FlightRecord& each : reader.records()) {
      const FlightState::Collective& call = each.collective;
      EXPECT_EQ(static_cast<std::int64_t>(call.number), call.bytes);
      for (const std::int64_t time : {call.started, call.ended}) {
        EXPECT_TRUE(time == 0 || time == call.bytes);
      }
    }
    reader.read();
  } while (!done);
  writer.join();
  EXPECT_EQ(reader.records().size(), 8U);
}

TEST(FlightFile, OutlastsAKill) {
  const Scratch folder;
  const std::string path = folder.path("rank_00002.flight");
  const pid_t child = ::fork();
  if (child == 0) {
    FlightFile file = FlightFile::create(path, 2, 4);
    file.phase(5, "forward");
    file.started(file.submit(gather_of(file.add_group("shard", {0, 1, 2, 3}), "h.1")), 9);
    ::raise(SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const FlightState state = FlightReader(path).read();
  EXPECT_EQ(state.rank, 2);
  EXPECT_EQ(state.process, child);
  EXPECT_EQ(state.step, 5);
  ASSERT_EQ(state.open.size(), 1U);
  EXPECT_EQ(state.open[0].name, "all_gather(h.1)");
  EXPECT_EQ(state.open[0].started, 9);
}

TEST(FlightFile, ReplacesAnOlderRunsButNotThatOfARunThatGoesOn) {
  const Scratch folder;
  const std::string path = folder.path("rank_00000.flight");
  auto first = std::make_unique<FlightFile>(FlightFile::create(path, 0, 2, 1));
  const FlightReader reader(path);
  EXPECT_THAT(error_of([&] { FlightFile::create(path, 0, 2, 2); }),
              HasSubstr("run.flight_folder: " + path + " is the file of a run that goes on"));
  first.reset();
  FlightFile second = FlightFile::create(path, 0, 2, 2);
  EXPECT_EQ(FlightReader(path).read().run, 2U);
  EXPECT_EQ(reader.read().run, 1U) << "whoever read the old one goes on";
  second.end_and_remove();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(folder.path())) << "an empty folder goes too";
}

TEST(FlightFile, RemovesNeitherALaterRunsFileNorAFolderWithOthers) {
  const Scratch folder;
  const std::string path = folder.path("rank_00000.flight");
  FlightFile mine = FlightFile::create(path, 0, 1, 1);
  std::filesystem::remove(path);
  folder.write("rank_00000.flight", "another");
  mine.end_and_remove();
  EXPECT_EQ(folder.read("rank_00000.flight"), "another");
  FlightFile beside = FlightFile::create(folder.path("rank_00001.flight"), 1, 2, 1);
  beside.end_and_remove();
  EXPECT_THAT(folder.names(), ElementsAre("rank_00000.flight"));
}

TEST(FlightFile, RefusesPlacesThatItMayNotTake) {
  const Scratch folder;
  folder.write("notes", "mine, and longer than that");
  EXPECT_THAT(error_of([&] { FlightFile::create(folder.path("notes"), 0, 1); }),
              HasSubstr("exists and is no flight file"));
  EXPECT_EQ(folder.read("notes"), "mine, and longer than that");
  EXPECT_THAT(error_of([&] { FlightFile::create(folder.path("none/file"), 0, 1); }),
              HasSubstr("run.flight_folder: cannot create " + folder.path("none/file") +
                        ": No such file or directory"));
}

// As a host leaves it that loses its power before the pages are on the disk.
TEST(FlightFile, ReplacesOneThatHoldsNothing) {
  const Scratch folder;
  const std::string path = folder.path("rank_00000.flight");
  folder.write("rank_00000.flight", std::string(flight::Offsets({}).end, '\0'));
  const FlightFile file = FlightFile::create(path, 0, 1, 5);
  EXPECT_EQ(FlightReader(path).read().run, 5U);
}

TEST(FlightFile, TakesItsRoomAtOnce) {
  const Scratch folder;
  const FileSizeLimit limit(4096);
  EXPECT_THAT(error_of([&] { FlightFile::create(folder.path("full"), 0, 1); }),
              ::testing::ContainsRegex("no room for [0-9]+[.][0-9] MB: "));
  EXPECT_THAT(folder.names(), IsEmpty());
}

/// What a reader says to `bytes`.
std::string refusal_of(const Scratch& folder, const std::string& bytes) {
  write_bytes(folder.path("changed"), bytes);
  return error_of([&] { FlightReader(folder.path("changed")).read(); });
}

TEST(FlightReader, NamesWhatIsNoFlightFile) {
  const Scratch folder;
  EXPECT_THAT(error_of([&] { FlightReader(folder.path("none")); }),
              HasSubstr("none: cannot be read: No such file or directory"));
  EXPECT_THAT(error_of([&] { FlightReader(folder.path()); }), HasSubstr("is no regular file"));
  {
    FlightFile file = FlightFile::create(folder.path("good"), 1, 2, 0, {.sizes = kSmall});
    file.phase(1, "forward");
  }
  const std::string good = folder.read("good");
  EXPECT_EQ(refusal_of(folder, good), "no error");
  EXPECT_THAT(refusal_of(folder, ""), HasSubstr("has 0 bytes, too few for a flight file"));
  EXPECT_THAT(refusal_of(folder, std::string(4096, 'x')), HasSubstr("is no flight file"));
  EXPECT_THAT(refusal_of(folder, good.substr(0, good.size() - 1)),
              HasSubstr(fmt::format("is cut short: has {} bytes, expected {}", good.size() - 1,
                                    good.size())));
  const auto with = [&](std::size_t place, std::uint32_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + place, &value, sizeof(value));
    return bytes;
  };
  EXPECT_THAT(refusal_of(folder, with(offsetof(flight::Header, version), 1)),
              HasSubstr("is a flight file of version 1; this program reads version 4"));
  EXPECT_THAT(refusal_of(folder, with(offsetof(flight::Header, rank), 2)),
              HasSubstr("is damaged: of rank 2 of 2 ranks"));
  const std::size_t sizes = offsetof(flight::Header, sizes);
  EXPECT_THAT(refusal_of(folder, with(sizes, ~0U)), HasSubstr("is damaged: room for 4294967295"));
  EXPECT_THAT(refusal_of(folder, with(sizes, 0)), HasSubstr("is damaged: room for 0 records"));
  EXPECT_THAT(refusal_of(folder, with(sizes, 9)), HasSubstr("is cut short"));
}

TEST(FlightReader, SurvivesAnyDamageBehindTheHeader) {
  const Scratch folder;
  {
    FlightFile file = FlightFile::create(folder.path("good"), 1, 2, 0, {.sizes = kSmall});
    file.phase(1, "forward");
    file.compute("h.0", Phase::forward);
    file.started(file.submit(gather_of(file.add_group("shard", {0, 1}), "h.0")), 5);
    file.write_last_words(finding_words());
  }
  const std::string good = folder.read("good");
  for (std::size_t place = 0; place < good.size(); ++place) {
    std::string bytes = good;
    bytes[place] = static_cast<char>(~bytes[place]);
    write_bytes(folder.path("changed"), bytes);
    try {
      const FlightReader reader(folder.path("changed"));
      reader.read();
      reader.records();
      reader.groups();
      reader.wall_clock_offset();
    } catch (const Error&) {  // may refuse, and nothing else
    }
  }
}

}  // namespace
}  // namespace zero::testing
