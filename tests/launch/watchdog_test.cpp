// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Watchdogs of ranks that are threads of this process, and stacks of its threads.
#include "launch/faults/watchdog.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "collectives/backends.h"
#include "collectives/operation.h"
#include "device/device.h"
#include "launch/faults/flight_file.h"
#include "launch/faults/thread_stack.h"
#include "tests/scratch.h"

namespace zero::testing {
std::atomic<bool> unwinder_waits{false};
}  // namespace zero::testing

/// The system's, in its place in this program: it waits when a test asks for that.
extern "C" int backtrace(void** frames, int most) {
  static const auto real = reinterpret_cast<int (*)(void**, int)>(::dlsym(RTLD_NEXT, "backtrace"));
  while (zero::testing::unwinder_waits) {
  }
  return real(frames, most);
}

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

/// What the watchdogs of a job have said.
struct Told {
  std::mutex mutex{};
  std::vector<std::vector<std::string>> texts{};
  std::atomic<int> ends{0};

  WatchdogOptions options() {
    return {.hang_seconds = 0.4,
            .tell =
                [this](const std::vector<std::string>& lines) {
                  const std::scoped_lock lock(mutex);
                  texts.push_back(lines);
                },
            .end = [this] { ++ends; }};
  }
};

/// Publishes a rank in the third step of a run whose steps have taken a tenth of a second.
void publish_step(FlightFile& file) {
  file.mean_step(0.1);
  file.phase(3, "backward");
}

FlightFile::Ticket enter(FlightFile& file, std::uint32_t group) {
  const auto ticket = file.submit(
      {.operation = static_cast<std::uint8_t>(Operation::barrier), .group = group, .name = "h.7"});
  file.started(ticket, FlightFile::now());
  return ticket;
}

TEST(Watchdog, NamesAThreadThatHangsOnceWithItsStack) {
  Told told;
  FlightState hung;
  local::run(3, [&](Communicator& world) {
    FlightFile file = FlightFile::create("", world.rank(), world.size());
    const std::uint32_t group = file.add_group("world", {0, 1, 2});
    const auto device = cpu::open();
    publish_step(file);
    Watchdog watchdog(world, *device, file, told.options());
    ASSERT_THAT(watchdog.obstacle(), IsEmpty());
    watchdog.know_thread("host thread", thread_number());
    watchdog.watch();
    if (world.rank() != 1) enter(file, group);
    while (told.ends == 0) std::this_thread::sleep_for(10ms);
    const FlightReader reader("/proc/self/fd/" + std::to_string(file.descriptor()));
    while (world.rank() == 1 && hung.stack.empty()) hung = reader.read();
    world.barrier(device->communication(), {"the end", {}});
    device->communication().synchronize();
  });
  EXPECT_EQ(told.ends.load(), 1);
  ASSERT_EQ(told.texts.size(), 1U);
  ASSERT_FALSE(told.texts[0].empty());
  EXPECT_THAT(told.texts[0][0], AllOf(HasSubstr("rank 1 has not entered barrier(h.7) #1"),
                                      HasSubstr("ranks 0, 2 have waited")));
  EXPECT_THAT(hung.stack, HasSubstr("host thread:\n"));
}

// As a call of a GPU's driver does while another thread is stuck in one.
TEST(Watchdog, LooksWhileWhatKeepsItsFileFreshIsStuck) {
  Told told;
  local::run(2, [&](Communicator& world) {
    FlightFile file = FlightFile::create("", world.rank(), world.size());
    const std::uint32_t group = file.add_group("world", {0, 1});
    const auto device = cpu::open();
    publish_step(file);
    std::atomic<int> calls{0};
    Watchdog watchdog(world, *device, file, told.options());
    watchdog.keep_fresh([&] {
      ++calls;
      while (told.ends == 0) std::this_thread::sleep_for(10ms);
    });
    watchdog.watch();
    if (world.rank() == 0) enter(file, group);
    while (told.ends == 0 || calls == 0) std::this_thread::sleep_for(10ms);
    world.barrier(device->communication(), {"the end", {}});
    device->communication().synchronize();
  });
  ASSERT_EQ(told.texts.size(), 1U);
  EXPECT_THAT(told.texts[0][0], HasSubstr("rank 1 has not entered barrier(h.7) #1"));
}

TEST(Watchdog, SaysNothingOfRanksThatGoOn) {
  Told told;
  local::run(2, [&](Communicator& world) {
    FlightFile file = FlightFile::create("", world.rank(), world.size());
    const std::uint32_t group = file.add_group("world", {0, 1});
    const auto device = cpu::open();
    publish_step(file);
    Watchdog watchdog(world, *device, file, told.options());
    watchdog.watch();
    EXPECT_FALSE(watchdog.takes_over());
    EXPECT_FALSE(watchdog.another_died(0ms));
    for (int i = 0; i < 20; ++i) {
      const auto ticket = enter(file, group);
      world.barrier(device->communication(), {"h.7", {}});
      device->communication().synchronize();
      file.ended(ticket, FlightFile::now());
      std::this_thread::sleep_for(50ms);
    }
    file.end();
    watchdog.rest();
  });
  EXPECT_EQ(told.ends.load(), 0);
  EXPECT_THAT(told.texts, IsEmpty());
}

// Of a disk that does not answer, as other ranks see it.
TEST(Watchdog, ShowsCallsToTheDiskThatGoOn) {
  Told told;
  local::run(1, [&](Communicator& world) {
    FlightFile file = FlightFile::create("", 0, 1);
    Watchdog watchdog(world, *cpu::open(), file, told.options());
    watchdog.watch();
    const FlightReader reader("/proc/self/fd/" + std::to_string(file.descriptor()));
    const std::int64_t published = reader.changed();
    const auto wait_until_shown = [&](bool going_on) {
      for (files::DiskCalls calls; calls.begun == 0 || (calls.begun > calls.ended) != going_on;) {
        std::this_thread::sleep_for(10ms);
        calls = reader.read().disk_calls;
      }
    };
    {
      const files::DiskCall call;
      wait_until_shown(true);
    }
    wait_until_shown(false);
    EXPECT_EQ(reader.changed(), published) << "the rank itself has done nothing";
  });
}

// Else a save that goes on would look like a hang.
TEST(Watchdog, ShowsACallThatDoesNotEndOnceItWatchesNoMore) {
  Told told;
  std::atomic<bool> warned{false};
  local::run(1, [&](Communicator& world) {
    FlightFile file = FlightFile::create("", 0, 1);
    WatchdogOptions options = told.options();
    options.warn = [&](const std::string&) { warned = true; };
    options.memory_kills = []() -> std::optional<std::int64_t> {
      throw std::runtime_error("no room");
    };
    Watchdog watchdog(world, *cpu::open(), file, std::move(options));
    watchdog.watch();
    while (!warned) std::this_thread::sleep_for(10ms);
    const FlightReader reader("/proc/self/fd/" + std::to_string(file.descriptor()));
    const files::DiskCalls calls = reader.read().disk_calls;
    EXPECT_EQ(calls.begun, calls.ended + 1);
  });
}

TEST(Watchdog, LeavesTheFirstLastWordsAlone) {
  Told told;
  local::run(1, [&](Communicator& world) {
    FlightFile file = FlightFile::create("", 0, 1);
    Watchdog watchdog(world, *cpu::open(), file, told.options());
    EXPECT_TRUE(watchdog.leave_words("ended by an error: no room"));
    EXPECT_FALSE(watchdog.leave_words("another"));
    const FlightReader reader("/proc/self/fd/" + std::to_string(file.descriptor()));
    EXPECT_EQ(reader.read().last_words, "ended by an error: no room");
  });
}

TEST(Watchdog, OfOneHostNamesNoneInErrors) {
  Told told;
  local::run(2, [&](Communicator& world) {
    FlightFile file = FlightFile::create("", world.rank(), world.size());
    Watchdog watchdog(world, *cpu::open(), file, told.options());
    EXPECT_EQ(watchdog.in_full("no room"), "no room");
  });
}

TEST(Watchdog, TellsAnErrorThatAnotherFaultHasOutrun) {
  Told told;
  local::run(3, [&](Communicator& world) {
    FlightFile file = FlightFile::create("", world.rank(), world.size());
    const auto device = cpu::open();
    Watchdog watchdog(world, *device, file, told.options());
    const auto meet = [&](const std::string& purpose) {
      world.barrier(device->communication(), {purpose, {}});
      device->communication().synchronize();
    };
    const FlightReader reader("/proc/self/fd/" + std::to_string(file.descriptor()));
    const auto words = [&] { return reader.read().last_words; };
    if (world.rank() == 1) watchdog.know_error("no room");
    if (world.rank() == 2) watchdog.know_error("no disk");
    meet("errors");
    // Nobody takes one for an error that has been told.
    ZERO_CHECK(!watchdog.another_tells(), "rank {}", world.rank());
    const std::string told_so =
        watchdog.in_full("barrier(h.7): waiting for 2 s for rank 1, the timeout of collectives");
    ZERO_CHECK(
        told_so.find("rank 1 had failed itself: no room\nrank 2 had failed itself: no disk") !=
            std::string::npos,
        "found: {}", told_so);
    meet("looks");
    if (world.rank() == 1) {
      ZERO_CHECK(words() == "failed itself: no room", "found: {}", words());
      watchdog.leave_words("ended because rank 0 had ended, which told why");
      ZERO_CHECK(
          words() == "ended because rank 0 had ended, which told why\nfailed itself: no room",
          "found: {}", words());
      watchdog.know_error("later");
      ZERO_CHECK(words().ends_with("no room"), "found: {}", words());
    } else if (world.rank() == 2) {
      watchdog.leave_words("ended by an error: no disk");
      ZERO_CHECK(words() == "ended by an error: no disk", "found: {}", words());
    }
    meet("end");
  });
}

TEST(Watchdog, OfAHostWhoseFilesCannotBeReadWatchesNobody) {
  Told told;
  const testing::Scratch folder;
  local::run(2, [&](Communicator& world) {
    const std::string path = folder.path(std::to_string(world.rank()));
    FlightFile file = FlightFile::create(path, world.rank(), world.size());
    if (world.rank() == 1) std::filesystem::remove(path);
    Watchdog watchdog(world, *cpu::open(), file, told.options());
    EXPECT_THAT(watchdog.obstacle(),
                AllOf(HasSubstr("rank 1 by rank "), HasSubstr(path.substr(0, path.size() - 1))));
    watchdog.watch();
    EXPECT_FALSE(watchdog.takes_over());
    EXPECT_FALSE(watchdog.another_died(0ms));
  });
  EXPECT_EQ(told.ends.load(), 0);
}

TEST(Watchdog, TakesNoOtherRanksFileForAPeers) {
  Told told;
  const testing::Scratch folder;
  local::run(2, [&](Communicator& world) {
    const std::string path = folder.path(std::to_string(world.rank()));
    FlightFile file = FlightFile::create(path, world.rank(), world.size());
    if (world.rank() == 1) {
      std::filesystem::remove(path);
      FlightFile::create(path, 0, 8);
    }
    Watchdog watchdog(world, *cpu::open(), file, told.options());
    EXPECT_THAT(watchdog.obstacle(), HasSubstr("is the flight file of rank 0, process "));
  });
}

/// A thread that sleeps, behind `first`, until this object ends.
class SleepingThread {
 public:
  explicit SleepingThread(const std::function<void()>& first = [] {})
      : thread_([this, first] {
          first();
          number_ = thread_number();
          while (!ends_) std::this_thread::sleep_for(10ms);
        }) {
    while (number_ == 0) std::this_thread::sleep_for(1ms);
  }
  SleepingThread(const SleepingThread&) = delete;
  SleepingThread& operator=(const SleepingThread&) = delete;
  ~SleepingThread() {
    ends_ = true;
    thread_.join();
  }

  pid_t number() const { return number_; }

 private:
  std::atomic<pid_t> number_{0};
  std::atomic<bool> ends_{false};
  std::thread thread_;  // last: uses all other members
};

TEST(ThreadStack, NamesTheCallersOfABlockedThread) {
  ASSERT_TRUE(prepare_stacks());
  const SleepingThread thread;
  const auto stack = stack_of(thread.number(), 60s);
  ASSERT_TRUE(stack);
  EXPECT_THAT(*stack, HasSubstr("nanosleep"));
  EXPECT_THAT(*stack, HasSubstr("\n"));
}

// Some launchers start their programs so.
TEST(ThreadStack, AThreadThatBlockedAllSignalsAnswers) {
  const SleepingThread thread([] {
    sigset_t all{};
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    EXPECT_TRUE(prepare_stacks());
  });
  const auto stack = stack_of(thread.number(), 60s);
  EXPECT_TRUE(stack);
}

TEST(ThreadStack, AnUnwinderThatWaitsIsNotWaitedFor) {
  ASSERT_TRUE(prepare_stacks());
  const SleepingThread thread;
  testing::unwinder_waits = true;
  EXPECT_FALSE(stack_of(thread.number(), 50ms));
  EXPECT_FALSE(stack_of(thread.number(), 50ms));
  testing::unwinder_waits = false;
  const auto end = std::chrono::steady_clock::now() + 60s;
  std::optional<std::string> stack;
  while (!stack && std::chrono::steady_clock::now() < end) stack = stack_of(thread.number(), 50ms);
  EXPECT_TRUE(stack);
}

TEST(ThreadStack, OfAThreadThatHasEndedOrAsksItselfIsNotThere) {
  ASSERT_TRUE(prepare_stacks());
  pid_t number = 0;
  std::thread([&] { number = thread_number(); }).join();
  EXPECT_FALSE(stack_of(number, 10ms));
  EXPECT_FALSE(stack_of(thread_number(), 10ms));
}

}  // namespace
}  // namespace zero
