// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// What the instruments of memory may replace, and what they must not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "launch/data/new_file.h"
#include "launch/memory/log_watch.h"
#include "launch/memory/memory_picture.h"
#include "launch/memory/memory_series.h"
#include "launch/memory/memory_trace_file.h"
#include "launch/train/file_checks.h"
#include "launch/train/run_observers.h"
#include "tests/device/calls_to_disk.h"
#include "tests/errors.h"
#include "tests/launch/config_with.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using FileNames = std::vector<std::string>;
using std::chrono::milliseconds;

/// A trace that has `bytes` charged and nothing else.
void write_charged(const std::string& path, std::int64_t bytes) {
  MemoryTraceFile file({.path = path});
  file.begin({{"parameters/p", bytes}}, 0);
  file.end(1);
}

std::string trace_refusal(const std::string& path) {
  return error_of([&] { const MemoryTraceFile file({.path = path}); });
}

TEST(TraceFiles, ReplaceNoOtherFile) {
  const Scratch folder;
  const std::string path = folder.path("m");
  for (const std::string text : {"tokens", "{\"memory\":1}\n", "\n{\"memory_trace\":1}\n"}) {
    for (const char* name : {"m", "m.before"}) {
      folder.write(name, text);
      EXPECT_THAT(trace_refusal(path), HasSubstr("run.memory_trace: " + folder.path(name) +
                                                 " exists and is no trace of memory"));
      EXPECT_EQ(folder.read(name), text);
      EXPECT_EQ(folder.names(), FileNames{name});
      std::filesystem::remove(folder.path(name));
    }
  }
  folder.write("m", "");
  EXPECT_EQ(trace_refusal(path), "no error");
  EXPECT_EQ(folder.names(), FileNames{"m"});
}

TEST(TraceFiles, AreNoDevicesPipesOrFolders) {
  const Scratch folder;
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/null", folder.path("link"));
  std::filesystem::create_directory(folder.path("folder"));
  const FileNames before = folder.names();
  for (const std::string& name : before) {
    EXPECT_THAT(trace_refusal(folder.path(name)),
                HasSubstr("run.memory_trace: " + folder.path(name) + " is no regular file"));
  }
  EXPECT_THAT(trace_refusal("/dev/full"), HasSubstr("/dev/full is no regular file"));
  EXPECT_EQ(folder.names(), before);
}

TEST(TraceFiles, AreKeptWithTheirEarlierPartUnderTheNextFreeNumber) {
  const Scratch folder;
  const std::string path = folder.path("m");
  write_charged(path, 100);
  const std::string first = folder.read("m");
  folder.write("m.before", first);
  folder.write("m.1.before", "taken");
  write_charged(path, 200);
  EXPECT_EQ(folder.names(), (FileNames{"m", "m.1.before", "m.2", "m.2.before"}));
  EXPECT_EQ(folder.read("m.2"), first);
  EXPECT_EQ(folder.read("m.2.before"), first);
  EXPECT_EQ(folder.read("m.1.before"), "taken");
  EXPECT_EQ(end_of(read_memory(folder.path("m.2"))).total, 100);
  EXPECT_EQ(end_of(read_memory(path)).total, 200);
}

TEST(TraceFiles, AFileThatIsPutInThePlaceOfTheEarlierPartStays) {
  const Scratch folder;
  MemoryTraceFile file({.path = folder.path("m"), .most_bytes = std::int64_t{64} << 10});
  file.begin({}, 0);
  folder.write("m.before", "mine");
  EXPECT_THAT(error_of([&] {
                for (int step = 1; step <= 2000; ++step) file.write({.step = step, .phase = "x"});
              }),
              HasSubstr("m.before exists and is no trace"));
  EXPECT_EQ(folder.read("m.before"), "mine");
}

// A file becomes the earlier part in the middle of a step.
TEST(TraceFiles, GoOnByCallsToTheDisk) {
  const Scratch folder;
  MemoryTraceFile file({.path = folder.path("m"), .most_bytes = std::int64_t{64} << 10});
  file.begin({}, 0);
#ifdef SYS_rename
  const std::vector<long> numbers{SYS_rename, SYS_openat, SYS_pread64, SYS_write};
#else
  const std::vector<long> numbers{SYS_renameat, SYS_openat, SYS_pread64, SYS_write};
#endif
  EXPECT_THAT(counted_calls(numbers,
                            [&] {
                              for (int step = 1; step <= 2000; ++step) {
                                file.write({.step = step, .phase = "x"});
                              }
                            }),
              ::testing::UnorderedElementsAreArray(numbers));
}

TEST(TraceFiles, AreOfOneRunAtATime) {
  const Scratch folder;
  const std::string path = folder.path("m");
  {
    const MemoryTraceFile first({.path = path});
    std::filesystem::create_hard_link(path, folder.path("other"));
    for (const char* name : {"m", "other"}) {
      EXPECT_THAT(trace_refusal(folder.path(name)),
                  HasSubstr("run.memory_trace: " + folder.path(name) + " is another run's trace"));
    }
  }
  EXPECT_EQ(trace_refusal(path), "no error");
}

TEST(TraceFiles, OfARunAreLockedByNameAndKept) {
  const Scratch folder;
  const std::string path = folder.path("m");
  const TrainConfig config = config_with({"run.memory_trace=" + path});
  {
    const RunObservers first(config, 0);
    EXPECT_THAT(first.lines(), IsEmpty());
    EXPECT_THAT(error_of([&] { const RunObservers second(config, 0); }),
                HasSubstr("run.memory_trace: " + path + " is another run's: process "));
    first.memory_trace()->begin({}, 0);
  }
  const RunObservers next(config, 0);
  EXPECT_EQ(next.lines(), FileNames{path + " begins anew; the trace of an earlier run is kept as " +
                                    path + ".1"});
}

TEST(TraceFiles, WithASecondFirstLineAreOfTwoRuns) {
  const Scratch folder;
  write_charged(folder.path("m"), 100);
  folder.write("m", folder.read("m") + folder.read("m"));
  // Lines of one run: first, charged, end.
  EXPECT_THAT(error_of([&] { read_memory(folder.path("m")); }), HasSubstr("m:4: memory_trace: "));
  EXPECT_THAT(error_of([&] { read_memory(folder.path("m")); }), HasSubstr("two runs wrote it"));
}

TEST(TraceFiles, HaveNoNameOfAnotherFileOfTheRun) {
  const Scratch folder;
  const auto checked = [&](const std::string& trace, const std::string& key,
                           const std::string& other) {
    const TrainConfig config =
        config_with({"run.memory_trace=" + folder.path(trace), key + "=" + folder.path(other)});
    return error_of([&] { check_files(config); });
  };
  for (const char* key : {"run.log", "run.trace", "run.save_weights"}) {
    for (const char* other : {"m", "m.rank3", "m.before", "m.rank12.before", "m.1", "./m"}) {
      EXPECT_THAT(checked("m", key, other),
                  HasSubstr(fmt::format("run.memory_trace: {} takes names of {} ({})",
                                        folder.path("m"), key, folder.path(other))));
    }
    for (const char* other : {"mm", "m.log", "m.rank", "m.json"}) {
      EXPECT_EQ(checked("m", key, other), "no error") << key << ' ' << other;
    }
  }
  EXPECT_THAT(checked("log.1", "run.log", "log"), HasSubstr("takes names of run.log"));
  std::filesystem::create_symlink("m", folder.path("link"));
  EXPECT_THAT(checked("m", "run.log", "link"), HasSubstr("takes names of run.log"));
}

std::string step_line(int step, int total) {
  return fmt::format(
      "{{\"step\":{},\"memory\":{{\"parameters\":{{\"now\":{},\"peak\":{}}},\"total\":{},"
      "\"peak\":{}}}}}\n",
      step, total, total, total, total);
}

TEST(LogWatches, BeginAnewInALogThatReplacesTheirs) {
  const Scratch folder;
  folder.write("log", step_line(1, 1024));
  LogWatch watch(folder.path("log"));
  EXPECT_EQ(watch.next().lines.size(), 1U);
  std::filesystem::rename(folder.path("log"), folder.path("log.1"));
  EXPECT_THAT(watch.next().lines, IsEmpty());  // the next has no name yet
  folder.write("log", step_line(1, 2048) + step_line(2, 2048) + step_line(3, 2048));
  const auto news = watch.next();
  ASSERT_EQ(news.lines.size(), 3U);  // longer than the first, and not read from its middle
  EXPECT_THAT(news.lines[0], HasSubstr("step 1  2.00 KiB"));
}

TEST(LogWatches, SayThatALogIsGone) {
  const Scratch folder;
  folder.write("log", step_line(1, 1024));
  LogWatch watch(folder.path("log"), milliseconds(0));
  EXPECT_EQ(watch.next().lines.size(), 1U);
  std::filesystem::remove(folder.path("log"));
  EXPECT_THAT(error_of([&] { watch.next(); }), HasSubstr("log: cannot be read: No such file"));
}

TEST(MemoryPictures, ReplaceNoDeviceAndNoPipe) {
  const Scratch folder;
  write_charged(folder.path("m"), 100);
  const MemorySeries series = read_memory(folder.path("m"));
  std::filesystem::create_symlink("/dev/full", folder.path("full"));
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  const FileNames before = folder.names();
  for (const char* name : {"full", "pipe"}) {
    EXPECT_THAT(error_of([&] { save_memory_picture(series, 9, folder.path(name)); }),
                HasSubstr("--html: " + folder.path(name) + " is no regular file"));
  }
  EXPECT_EQ(folder.names(), before);
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path("full")));
}

TEST(WholeFiles, ReplaceFilesAndNothingElse) {
  const Scratch folder;
  folder.write("kept", "before");
  std::filesystem::create_symlink("kept", folder.path("link"));
  write_whole_file(folder.path("link"), "after");
  EXPECT_EQ(folder.read("kept"), "before");  // nothing is written through a link
  write_whole_file(folder.path("kept"), "after");
  EXPECT_EQ(folder.read("kept"), folder.read("link"));
  std::filesystem::create_symlink("/dev/null", folder.path("null"));
  std::filesystem::create_directory(folder.path("folder"));
  for (const char* name : {"null", "folder"}) {
    EXPECT_THAT(error_of([&] { write_whole_file(folder.path(name), "lost"); }),
                HasSubstr(folder.path(name) + ": is there already and is not a regular file"));
  }
  EXPECT_THAT(error_of([&] { write_whole_file(folder.path("none/file"), "lost"); }),
              HasSubstr("No such file or directory"));
  EXPECT_EQ(folder.names(), (FileNames{"folder", "kept", "link", "null"}));
}

}  // namespace
}  // namespace zero::testing
