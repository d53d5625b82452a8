// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/run_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>

#include "launch/process/open_files.h"
#include "tests/device/calls_to_disk.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

std::string step_line(int step) {
  return R"({"step":)" + std::to_string(step) + R"(,"loss":)" + std::to_string(step) +
         (step == 1 ? ".5,\"run\":\"a\"}\n" : ".5}\n");
}

std::string steps(int first, int last) {
  std::string text;
  for (int step = first; step <= last; ++step) text += step_line(step);
  return text;
}

const std::string kSaved = "{\"saved_step\":2}\n";
const LogPoint kAfterThree{.run = "a", .step = 3, .first_loss = 1.5, .loss = 3.5};

TEST(RunLog, OfAPipeWithoutAReaderIsRefused) {
  const Scratch folder;
  const std::string pipe = folder.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto open_and_end = [&] {
    ::alarm(60);  // should it wait for a reader
    const std::string message = error_of([&] { RunLog log(pipe); });
    const bool said = message.starts_with(
        "run.log: " + pipe + " is a pipe or a socket that nobody reads; start its reader first");
    ::_exit(said ? 0 : 1);
  };
  EXPECT_EXIT(open_and_end(), ::testing::ExitedWithCode(0), "");
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  RunLog log(pipe);
  log.write({{"step", 1}});
  std::array<char, 32> text{};
  EXPECT_EQ(::read(reader, text.data(), text.size()), 11);
  ::close(reader);
}

// Locks go with the file, not with one of its names.
TEST(RunLog, OfARunIsNoOtherRunsUnderAnotherName) {
  constexpr std::chrono::milliseconds kNone{0};
  const Scratch folder;
  folder.write("run.log", step_line(1));
  std::filesystem::create_hard_link(folder.path("run.log"), folder.path("other"));
  const auto refusal = [&](const std::string& name) {
    return error_of([&] { const RunLog log(folder.path(name), kNone); });
  };
  {
    RunLog first(folder.path("run.log"));
    EXPECT_EQ(refusal("other"),
              "run.log: " + folder.path("other") +
                  " is another run's log, under this name or another (a hard link); end that run "
                  "or wait for its end, or give this one another run.log");
    EXPECT_THAT(refusal("run.log"), HasSubstr("is another run's log"));
    EXPECT_EQ(first.start_over(), folder.path("run.log.1"));
    EXPECT_EQ(refusal("other"), "no error");
    std::filesystem::create_hard_link(folder.path("run.log"), folder.path("third"));
    EXPECT_THAT(refusal("third"), HasSubstr("is another run's log"));
  }
  EXPECT_EQ(refusal("third"), "no error");
  EXPECT_EQ(folder.read("other"), step_line(1));
}

// The lock is on the file to which the link leads.
TEST(RunLog, ThatIsALinkStaysOneWhenItStartsOver) {
  const Scratch folder;
  std::filesystem::create_symlink("run.log", folder.path("link"));
  RunLog(folder.path("link")).write({{"step", 1}});
  RunLog log(folder.path("link"));
  EXPECT_EQ(log.start_over(), folder.path("run.log.1"));
  log.write({{"step", 2}});
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path("link")));
  EXPECT_EQ(folder.read("run.log"), "{\"step\":2}\n");
  EXPECT_EQ(folder.read("run.log.1"), "{\"step\":1}\n");
}

// `zero_train > FILE` with run.log /dev/stdout: both write where the other has ended.
TEST(RunLog, OfStandardOutputsFileIsWrittenAtItsPlace) {
  const Scratch folder;
  const std::string path = folder.write("out", "");
  const int before = ::dup(STDOUT_FILENO);
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(::dup2(file, STDOUT_FILENO), STDOUT_FILENO);
  EXPECT_EQ(::write(STDOUT_FILENO, "first\n", 6), 6);
  std::string aside;
  {
    RunLog log("/proc/self/fd/1");
    aside = log.start_over();
    log.write({{"step", 1}});
  }
  EXPECT_EQ(::write(STDOUT_FILENO, "last\n", 5), 5);
  ASSERT_EQ(::dup2(before, STDOUT_FILENO), STDOUT_FILENO);
  ::close(before);
  ::close(file);
  EXPECT_EQ(aside, "");
  EXPECT_EQ(folder.read("out"), "first\n{\"step\":1}\nlast\n");
}

TEST(RunLog, KeepsItsLinesUntilARunBegins) {
  const Scratch folder;
  folder.write("run.log", steps(1, 4));
  RunLog log(folder.path("run.log"));
  EXPECT_EQ(folder.read("run.log"), steps(1, 4));
  folder.write("run.log.1", "older\n");
  EXPECT_EQ(log.start_over(), folder.path("run.log.2"));
  EXPECT_EQ(folder.read("run.log.1"), "older\n");
  EXPECT_EQ(folder.read("run.log.2"), steps(1, 4));
  log.write({{"step", 1}});
  EXPECT_EQ(folder.read("run.log"), "{\"step\":1}\n");
  RunLog fresh(folder.path("new.log"));
  EXPECT_EQ(fresh.start_over(), "");
}

TEST(RunLog, CutsOffTheStepsThatAreDoneAgain) {
  const Scratch folder;
  const std::string kept = steps(1, 2) + kSaved + step_line(3);
  for (const std::string& cut :
       {std::string(), step_line(4), steps(4, 9), kSaved + step_line(4), step_line(4) + "{\"st",
        std::string("{\"step\":4"), std::string("{\"final\":true}\n"), std::string(3, '\0'),
        std::string("no JSON\n") + step_line(4)}) {
    folder.write("run.log", kept + cut);
    RunLog log(folder.path("run.log"));
    const RunLog::Cut result = log.go_on(kAfterThree);
    EXPECT_EQ(result.last_step, 3) << cut;
    EXPECT_EQ(result.line["loss"], 3.5) << cut;
    EXPECT_EQ(result.lines > 0, !cut.empty()) << cut;
    EXPECT_EQ(folder.read("run.log"), kept) << cut;
    log.write({{"step", 4}});
    EXPECT_EQ(folder.read("run.log"), kept + "{\"step\":4}\n") << cut;
  }
}

TEST(RunLog, LinesOfDoneStepsStayWhateverStandsBetween) {
  const Scratch folder;
  for (const std::string& between : {std::string("no JSON\n"), std::string("[4]\n"),
                                     std::string("\0\0\n", 3), std::string("\n7\n")}) {
    const std::string kept = steps(1, 2) + between + step_line(3);
    folder.write("run.log", kept + between + steps(4, 5));
    const RunLog::Cut cut = RunLog(folder.path("run.log")).go_on(kAfterThree);
    EXPECT_EQ(cut.last_step, 3) << between;
    EXPECT_EQ(cut.aside, "");
    EXPECT_EQ(folder.read("run.log"), kept) << between;
  }
}

TEST(RunLog, TellsOfLinesThatAreMissing) {
  const Scratch folder;
  folder.write("run.log", steps(1, 2) + "{\"step\":3");
  const RunLog::Cut cut = RunLog(folder.path("run.log")).go_on(kAfterThree);
  EXPECT_EQ(cut.last_step, 2);
  EXPECT_EQ(cut.lines, 1);
  EXPECT_EQ(folder.read("run.log"), steps(1, 2));
  EXPECT_EQ(RunLog(folder.path("none.log")).go_on(kAfterThree).last_step, 0);
}

TEST(RunLog, OfAnotherRunIsNotCut) {
  const Scratch folder;
  const auto refusal = [&](const std::string& text, const LogPoint& at) {
    folder.write("run.log", text);
    RunLog log(folder.path("run.log"));
    std::string message = error_of([&] { log.go_on(at); });
    EXPECT_EQ(folder.read("run.log"), text);
    return message;
  };
  EXPECT_THAT(
      refusal(steps(1, 9), {.run = "a", .step = 3, .first_loss = 1.5, .loss = 3.25}),
      HasSubstr("is not the log of the checkpoint's run: its loss of step 3 is 3.5, expected "
                "3.25; move the file away"));
  EXPECT_THAT(refusal(steps(1, 9), {.run = "a", .step = 30, .first_loss = 1.25}),
              HasSubstr("its loss of step 1 is 1.5, expected 1.25"));
  EXPECT_THAT(refusal(steps(1, 9), {.run = "a", .step = 30}),
              HasSubstr("its loss of step 1 is 1.5, expected null"));
  const std::string no_number = "{\"step\":1,\"loss\":null,\"run\":\"a\"}\n";
  EXPECT_THAT(refusal(no_number, kAfterThree),
              HasSubstr("its loss of step 1 is null, expected 1.5"));
  EXPECT_EQ(refusal(no_number, {.run = "a", .step = 3, .loss = 3.5}), "no error");
  EXPECT_THAT(refusal(steps(1, 2), {.run = "b", .step = 3, .first_loss = 1.5}),
              HasSubstr("\"run\" of its first line is \"a\", expected \"b\""));
  for (const char* other : {"{\"step\":1,\"loss\":1.5}\n", "[]\n", "7\n"}) {
    EXPECT_THAT(refusal(other + steps(2, 4), kAfterThree),
                HasSubstr("\"run\" of its first line is missing, expected \"a\""));
  }
}

// A crash leaves the beginning of a line, or zeros where a line was.
TEST(RunLog, WhoseFirstLineIsNoJsonIsKeptAndStartsOver) {
  for (const std::string& text :
       {std::string(3, '\0'), std::string("{\"resumed_aft"), std::string("\n"),
        std::string(9, '\0') + "5}\n" + steps(2, 4), "notes\n" + steps(2, 4)}) {
    const Scratch folder;
    folder.write("run.log", text);
    RunLog log(folder.path("run.log"));
    const RunLog::Cut cut = log.go_on(kAfterThree);
    EXPECT_EQ(cut.last_step, 0) << text;
    EXPECT_EQ(cut.aside, folder.path("run.log.1")) << text;
    EXPECT_EQ(folder.read("run.log.1"), text);
    log.write({{"step", 4}});
    EXPECT_EQ(folder.read("run.log"), "{\"step\":4}\n") << text;
  }
}

TEST(RunLog, MayBeWhereNoFileCanBeMade) {
  for (const char* path : {"/dev/null", "/proc/self/fd/1"}) {
    EXPECT_EQ("no error", error_of([&] { check_writable(path, "run.log"); })) << path;
  }
  EXPECT_THAT(error_of([] { check_writable("/nowhere/run.log", "run.log"); }),
              ::testing::HasSubstr("the folder /nowhere of /nowhere/run.log does not exist"));
}

// Others load, and wait for it, or for a save that syncs it.
TEST(RunLog, IsCutAndMovedByCallsToTheDisk) {
  const Scratch folder;
  folder.write("run.log", steps(1, 4));
#ifdef SYS_rename
  const std::vector<long> numbers{SYS_openat, SYS_read, SYS_ftruncate, SYS_fdatasync, SYS_rename};
#else
  const std::vector<long> numbers{SYS_openat, SYS_read, SYS_ftruncate, SYS_fdatasync, SYS_renameat};
#endif
  EXPECT_THAT(counted_calls(numbers,
                            [&] {
                              RunLog log(folder.path("run.log"));
                              log.go_on(kAfterThree);
                              log.sync();
                              EXPECT_EQ(log.start_over(), folder.path("run.log.1"));
                            }),
              ::testing::UnorderedElementsAreArray(numbers));
}

TEST(RunLog, ThatCannotBeReadIsNotCut) {
  const Scratch folder;
  folder.write("run.log", steps(1, 4));
  RunLog log(folder.path("run.log"));
  const std::string ended =
      on_supervised_thread(SYS_read, first_calls_end_with(EIO), [&] { log.go_on(kAfterThree); });
  EXPECT_TRUE(ended == kNoSupervision ||
              ended.ends_with("cannot be read; nothing of it is cut off"))
      << ended;
  EXPECT_EQ(folder.read("run.log"), steps(1, 4));
}

TEST(RunLog, OfADeviceHasNoLinesToCut) {
  RunLog log("/dev/null");
  EXPECT_EQ(log.start_over(), "");
  EXPECT_EQ(log.go_on(kAfterThree).lines, 0);
  log.sync();
}

}  // namespace
}  // namespace zero::testing
