// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "tests/device/calls_to_disk.h"
#include "tests/scratch.h"

namespace zero {
namespace {

using Result = Output::Result;

/// Two ends of a pipe or a pair of sockets.
class Ends {
 public:
  enum class Of { pipe, sockets };
  explicit Ends(Of of) {
    const int failed =
        of == Of::pipe ? ::pipe(all_.data()) : ::socketpair(AF_UNIX, SOCK_STREAM, 0, all_.data());
    EXPECT_EQ(failed, 0);
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;
  ~Ends() {
    close_reader();
    ::close(all_[1]);
  }
  int writer() const { return all_[1]; }
  std::string read() const {
    std::string text(1 << 20, '\0');
    text.resize(static_cast<std::size_t>(::read(all_[0], text.data(), text.size())));
    return text;
  }
  void close_reader() {
    if (all_[0] >= 0) ::close(all_[0]);
    all_[0] = -1;
  }

 private:
  std::array<int, 2> all_{};
};

const std::string kMuch(1 << 20, 'x');  // more than a pipe holds
bool never() { return false; }

TEST(Output, DropsWhatAFullPipeDoesNotTake) {
  for (const Ends::Of of : {Ends::Of::pipe, Ends::Of::sockets}) {
    const Ends ends(of);
    const int flags = ::fcntl(ends.writer(), F_GETFL);
    const Output output(ends.writer());
    EXPECT_EQ(output.write("a line\n", never), Result::written);
    EXPECT_EQ(ends.read(), "a line\n");
    EXPECT_EQ(output.write(kMuch, never), Result::dropped);
    int asked = 0;
    EXPECT_EQ(output.write("more\n", [&] { return ++asked < 3; }), Result::dropped);
    EXPECT_EQ(asked, 3);
    // The reader goes on: the next lines arrive.
    EXPECT_EQ(output.write("more\n", [&] { return !ends.read().empty(); }), Result::written);
    EXPECT_EQ(::fcntl(ends.writer(), F_GETFL), flags) << "other processes share them";
  }
}

TEST(Output, TellsOfAReaderThatIsGone) {
  ::signal(SIGPIPE, SIG_IGN);
  for (const Ends::Of of : {Ends::Of::pipe, Ends::Of::sockets}) {
    Ends ends(of);
    const Output output(ends.writer());
    ends.close_reader();
    EXPECT_EQ(output.write("a line\n", never), Result::closed);
  }
}

TEST(Output, OfATerminalThatHungUpHasNoReader) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(::grantpt(terminal), 0);
  ASSERT_EQ(::unlockpt(terminal), 0);
  const int writer = ::open(::ptsname(terminal), O_WRONLY | O_NOCTTY);
  ASSERT_GE(writer, 0);
  const Output output(writer);
  EXPECT_EQ(output.write("a line\n", never), Result::written);
  ::close(terminal);
  EXPECT_EQ(output.write("a line\n", never), Result::closed);
  ::close(writer);
}

TEST(Output, ThatWasClosedOnPurposeHasNoReader) {
  const int closed = ::dup(STDERR_FILENO);
  ::close(closed);
  EXPECT_EQ(Output(closed).write("a line\n", never), Result::closed);
  const int kept_closed = ::open("/dev/null", O_RDONLY);
  EXPECT_EQ(Output(kept_closed).write("a line\n", never), Result::closed);
  ::close(kept_closed);
}

TEST(Output, OfAFileIsWhole) {
  const testing::Scratch folder;
  const int file = ::open(folder.path("out").c_str(), O_WRONLY | O_CREAT, 0600);
  EXPECT_EQ(Output(file).write("one\n", never), Result::written);
  EXPECT_EQ(Output(file).write("two\n", never), Result::written);
  ::close(file);
  EXPECT_EQ(folder.read("out"), "one\ntwo\n");
}

// A rank prints while others wait for it.
TEST(Output, ToAFileIsACallToTheDisk) {
  const testing::Scratch folder;
  const Descriptor file(::open(folder.path("out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const std::set<long> numbers{SYS_write};
  EXPECT_EQ(testing::counted_calls({SYS_write}, [&] { Output(file.get()).write("one\n", never); }),
            numbers);
}

TEST(Console, TellsOnceThatNobodyReads) {
  ::signal(SIGPIPE, SIG_IGN);
  Ends ends(Ends::Of::pipe);
  std::FILE* const stream = ::fdopen(::dup(ends.writer()), "w");
  int gone = 0;
  Console console(stream, Console::Mode::terminal, {.hurries = {}, .gone = [&] { ++gone; }});
  console.line("read");
  EXPECT_EQ(ends.read(), "read\n");
  console.refresh("step 1");
  ends.close_reader();
  for (int i = 0; i < 3; ++i) console.line("unread");
  EXPECT_EQ(gone, 1);
  EXPECT_EQ(console.mode(), Console::Mode::silent);
  std::fclose(stream);
}

// Others may wait for the rank meanwhile, in a validation.
TEST(Console, WaitsForItsReaderAsForADisk) {
  const Ends ends(Ends::Of::pipe);
  std::FILE* const stream = ::fdopen(::dup(ends.writer()), "w");
  int waits = 0;
  const auto hurries = [&] {
    EXPECT_TRUE(testing::a_call_to_the_disk_goes_on());
    return ++waits == 2;
  };
  Console console(stream, Console::Mode::lines, {.hurries = hurries, .gone = {}, .failed = {}});
  console.line(kMuch);
  EXPECT_EQ(waits, 2);
  EXPECT_FALSE(testing::a_call_to_the_disk_goes_on());
  std::fclose(stream);
}

TEST(Console, TellsOnceOfADiskThatIsFull) {
  std::FILE* const stream = std::fopen("/dev/full", "w");
  ASSERT_NE(stream, nullptr);
  EXPECT_EQ(Output(::fileno(stream)).write("a line\n", never), Result::failed);
  std::vector<int> errors;
  Console console(stream, Console::Mode::lines,
                  {.failed = [&](int error) { errors.push_back(error); }});
  for (int i = 0; i < 3; ++i) console.line("lost");
  EXPECT_EQ(errors, std::vector<int>{ENOSPC});
  EXPECT_EQ(console.mode(), Console::Mode::lines);
  std::fclose(stream);
}

TEST(Console, DropsLinesOfAFullPipeWhereItHurries) {
  const Ends ends(Ends::Of::pipe);
  std::FILE* const stream = ::fdopen(::dup(ends.writer()), "w");
  Console console(stream, Console::Mode::lines, {.hurries = [] { return true; }});
  for (int i = 0; i < 3; ++i) console.line(kMuch);
  EXPECT_EQ(ends.read().front(), 'x');
  std::fclose(stream);
}

// In a short run it changes no output.
TEST(WorkProgress, IsShownWithSpeedAndTimeLeftOnceTheWorkIsLong) {
  const auto shown = [](Console::Mode mode, std::chrono::seconds ago) {
    const Ends ends(Ends::Of::pipe);
    std::FILE* const stream = ::fdopen(::dup(ends.writer()), "w");
    Console console(stream, mode);
    const auto progress = work_progress(console, "hashing the model states", "values",
                                        std::chrono::steady_clock::now() - ago);
    for (const std::int64_t done : {0, 250, 500}) progress(done, 1000);
    console.line("done");
    std::fclose(stream);
    Output(ends.writer()).write(".", never);  // a silent console leaves nothing to read
    std::string text = ends.read();
    text.pop_back();
    return text;
  };
  for (const Console::Mode mode : {Console::Mode::terminal, Console::Mode::lines}) {
    EXPECT_EQ(shown(mode, std::chrono::seconds(1)), "done\n");
  }
  const std::string first = "hashing the model states: 25 %  250 of 1.0k values  ";
  EXPECT_TRUE(shown(Console::Mode::terminal, std::chrono::seconds(50)).starts_with("\r" + first));
  EXPECT_EQ(shown(Console::Mode::lines, std::chrono::seconds(5)), "done\n");
  const std::string lines = shown(Console::Mode::lines, std::chrono::seconds(50));
  EXPECT_TRUE(lines.starts_with(first)) << lines;
  EXPECT_TRUE(lines.ends_with(" left\ndone\n")) << lines;
  EXPECT_EQ(shown(Console::Mode::silent, std::chrono::seconds(50)), "");
}

}  // namespace
}  // namespace zero
