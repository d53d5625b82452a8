// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "collectives/host/memory.h"
#include "collectives/host/process.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero::test {
namespace {

using ::testing::HasSubstr;
using testing::Scratch;
using ::testing::StartsWith;
using testing::write_bytes;

// A process of this test that sleeps, and is gone and forgotten at the end.
class Child {
 public:
  Child() : id_(fork()) {
    if (id_ == 0) {
      for (;;) pause();
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    kill(id_, SIGKILL);
    reap();
  }
  host::Process process() const {
    const Descriptor directory(
        open(fmt::format("/proc/{}", id_).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    return {id_, host::start_of(directory)};
  }
  // It ends, and waits to be reaped.
  void end() const {
    kill(id_, SIGKILL);
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOWAIT);
  }
  void reap() const { waitpid(id_, nullptr, 0); }

 private:
  pid_t id_;
};

// While it lives, this process can open no file.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &none);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(HostProcess, SaysWhatItDoes) {
  EXPECT_EQ(host::described(host::this_process()), fmt::format("process {} runs", getpid()));
  const pid_t child = fork();
  if (child == 0) {
    std::raise(SIGSTOP);
    for (;;) pause();
  }
  int status = 0;
  waitpid(child, &status, WUNTRACED);
  const host::Process process = host::process(child);
  EXPECT_EQ(host::described(process), fmt::format("process {} is stopped", child));
  kill(child, SIGKILL);
  kill(child, SIGCONT);
  waitpid(child, &status, 0);
  EXPECT_EQ(host::described(process), fmt::format("process {} has ended", child));
}

TEST(HostProcess, SaysWhetherItsThreadsRun) {
  const pid_t child = fork();
  if (child == 0) {
    std::raise(SIGSTOP);
    const volatile bool spins = true;
    while (spins) {
    }
  }
  int status = 0;
  waitpid(child, &status, WUNTRACED);
  const host::Process process = host::process(child);
  const auto stopped = host::activity(process);
  ASSERT_TRUE(stopped);
  EXPECT_TRUE(stopped->stopped);
  EXPECT_FALSE(stopped->runnable);
  kill(child, SIGCONT);
  std::optional<host::Activity> runs;
  while (!runs || runs->cpu <= stopped->cpu) runs = host::activity(process);
  EXPECT_TRUE(runs->runnable);
  EXPECT_FALSE(runs->stopped);
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  EXPECT_FALSE(host::activity(process));
}

// As behind a server that hangs.
TEST(HostProcess, SaysWhetherAThreadWaitsForADevice) {
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    std::thread([] { pause(); }).detach();  // is looked at last
    // The parent sleeps so until its child ends.
    if (syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0L, 0L, 0L, 0L) == 0) {
      for (;;) pause();
    }
    for (;;) pause();
  }
  const host::Process process = host::process(child);
  std::optional<host::Activity> waits;
  while (!waits || !waits->in_device || waits->runnable) waits = host::activity(process);
  EXPECT_FALSE(waits->stopped);
  EXPECT_FALSE(host::activity(host::this_process()).value_or(host::Activity{}).in_device);
  kill(-child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
}

/// What /proc would say of a process of this number with one thread in this state, of which a
/// file of the process has `more`.
std::optional<host::Activity> activity_of(char state, const std::string& more) {
  constexpr int kNumber = 4711;
  constexpr std::uint64_t kStart = 99;
  const Scratch root;
  const std::string folder = root.path("proc/4711");
  std::filesystem::create_directories(folder + "/task/4711");
  std::string stat = fmt::format("{} (zero train) {}", kNumber, state);
  for (int field = 4; field < 22; ++field) stat += " 7";
  stat += fmt::format(" {} 0 0\n", kStart);
  write_bytes(folder + "/stat", stat);
  write_bytes(folder + "/task/4711/stat", stat);
  write_bytes(folder + "/status", "Name:\tzero train\nThreads:\t1\n" + more);
  write_bytes(folder + "/task/4711/status",
              "nonvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t8\n");
  host::BusiestThread busiest;
  return host::activity({kNumber, kStart}, &busiest, root.path());
}

TEST(HostProcess, WaitsForADeviceInAnyStateWithoutSignals) {
  for (const char state : {'D', 'I'}) EXPECT_TRUE(activity_of(state, "")->in_device) << state;
  for (const char state : {'R', 'S', 'T'}) EXPECT_FALSE(activity_of(state, "")->in_device) << state;
}

TEST(HostProcess, SaysWhetherItHasCrashedAndItsCoreIsDumped) {
  const auto dumps = activity_of('D', "CoreDumping:\t1\nTHP_enabled:\t1\n");
  ASSERT_TRUE(dumps);
  EXPECT_TRUE(dumps->dumps_core);
  const auto runs = activity_of('R', "CoreDumping:\t0\nTHP_enabled:\t1\n");
  ASSERT_TRUE(runs);
  EXPECT_FALSE(runs->dumps_core);
  EXPECT_TRUE(runs->runnable);
  EXPECT_FALSE(activity_of('S', "")->dumps_core) << "Linux before 4.15 does not say";
  EXPECT_FALSE(host::activity(host::process(getppid())).value_or(host::Activity{}).dumps_core);
}

TEST(HostProcess, SaysWhatItsThreadsRunAndTouch) {
  const auto runs = activity_of('R', "");
  ASSERT_TRUE(runs);
  const std::int64_t ticks =
      std::int64_t{7} * 1'000'000'000 / sysconf(_SC_CLK_TCK);  // each field is 7
  EXPECT_EQ(runs->cpu, 2 * ticks);
  EXPECT_EQ(runs->resident, 0);
  EXPECT_EQ(runs->busiest.id, 4711);
  EXPECT_TRUE(runs->busiest.runnable);
  EXPECT_EQ(runs->busiest.cpu, 2 * ticks);
  EXPECT_EQ(runs->busiest.kernel, ticks);
  EXPECT_EQ(runs->busiest.faults, 14);
  EXPECT_EQ(runs->busiest.switches, 8);
  EXPECT_EQ(activity_of('S', "")->busiest.id, 0);
  EXPECT_EQ(activity_of('R', "VmHWM:\t   9 kB\nVmRSS:\t     8 kB\nRssFile:\t     5 kB\n")->resident,
            3 * 1024);
}

/// A thread that has run for so many hundredths of a second.
host::Thread thread(int id, std::int64_t hundredths, bool runnable = true) {
  return {.id = id, .runnable = runnable, .cpu = hundredths * 10'000'000};
}

/// Looks, of which each is 0.2 s behind the last.
struct LooksAtThreads {
  host::BusiestThread busiest{};
  host::BusiestThread::Time now{};

  std::optional<std::size_t> at(const std::vector<host::Thread>& threads,
                                std::chrono::milliseconds later = std::chrono::milliseconds(200)) {
    return busiest.of(threads, now += later);
  }
};

TEST(HostProcess, ItsBusiestThreadHasRunMoreThanAllOthersSinceTheLastLook) {
  LooksAtThreads looks;
  EXPECT_EQ(looks.at({thread(1, 900, false), thread(2, 100), thread(3, 200)}), 2U);
  EXPECT_EQ(looks.at({thread(1, 900), thread(2, 120), thread(3, 209)}), 1U);
  EXPECT_EQ(looks.at({thread(1, 911), thread(2, 130), thread(3, 218)}), std::nullopt);
  EXPECT_EQ(looks.at({thread(1, 911), thread(3, 220), thread(4, 9)}), 2U) << "is new";
  EXPECT_EQ(looks.at({thread(1, 912), thread(3, 221), thread(4, 29, false)}), std::nullopt)
      << "sleeps now";
}

// One that runs for a tenth of the time, beside others that wake now and then.
TEST(HostProcess, ItsBusiestThreadHoldsUntilItsThreadsHaveRunForAWhile) {
  LooksAtThreads looks;
  EXPECT_EQ(looks.at({thread(1, 5), thread(2, 1)}), 0U);
  EXPECT_EQ(looks.at({thread(1, 5), thread(2, 2)}), 0U);
  EXPECT_EQ(looks.at({thread(1, 5, false), thread(2, 3)}), std::nullopt);
  EXPECT_EQ(looks.at({thread(1, 7), thread(2, 3)}), 0U);
  EXPECT_EQ(looks.at({thread(1, 7), thread(2, 4)}), 1U) << "3 of 5";
}

// In steps another thread has run most.
TEST(HostProcess, ItsBusiestThreadIsChosenAnewBehindAPause) {
  LooksAtThreads looks;
  EXPECT_EQ(looks.at({thread(1, 50), thread(2, 1)}), 0U);
  EXPECT_EQ(looks.at({thread(1, 150, false), thread(2, 90)}, std::chrono::minutes(1)), 1U);
  EXPECT_EQ(looks.at({thread(1, 150, false), thread(2, 110)}), 1U);
}

// As the system itself says: an endless loop, and memory that is touched for the first time.
TEST(HostProcess, TellsALoopFromTheKernelsWork) {
  for (const bool touches : {false, true}) {
    const pid_t child = fork();
    if (child == 0) {
      const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) * 1000;
      const volatile bool spins = true;
      while (spins) {
        if (!touches) continue;
        void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        munmap(pages, bytes);
        void* const one =
            mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *static_cast<volatile char*>(one) = 1;
        munmap(one, 1);
      }
    }
    const host::Process process = host::process(child);
    host::BusiestThread busiest;
    host::Thread begin;
    while (begin.id == 0) begin = host::activity(process, &busiest).value().busiest;
    host::Thread end;
    while (end.cpu < begin.cpu + 300'000'000) {
      end = host::activity(process, &busiest).value().busiest;
    }
    EXPECT_EQ(begin.id, child);
    const std::int64_t ran = end.cpu - begin.cpu;
    const std::int64_t kernel = end.kernel - begin.kernel;
    EXPECT_EQ(kernel * 5 > ran, touches) << kernel << " of " << ran;
    EXPECT_EQ(end.faults - begin.faults > 30, touches) << end.faults - begin.faults;
    if (!touches) {
      EXPECT_LE(end.switches - begin.switches, 5);
    }
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
  }
}

// Of a program with several threads, what any of them does; not what the caller does.
TEST(HostProcess, DoesWhatItsOtherThreadsDo) {
  std::atomic<bool> ends{false};
  std::atomic<pid_t> spinner{0};
  std::thread spins([&] {
    for (int i = 0; i < 20; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    spinner = gettid();
    while (!ends) {
    }
  });
  while (spinner == 0) std::this_thread::yield();
  host::BusiestThread busiest;
  std::optional<host::Activity> others;
  while (!others || others->busiest.id == 0) {
    others = host::activity(host::this_process(), &busiest);
  }
  ends = true;
  spins.join();
  EXPECT_TRUE(others->runnable);
  EXPECT_EQ(others->busiest.id, spinner);
  EXPECT_GE(others->busiest.switches, 20);
  EXPECT_GT(others->resident, 0);
}

TEST(HostProcess, HasEndedOnceItIsGoneOrWaitsToBeReaped) {
  const Child child;
  const host::Process process = child.process();
  const host::Watch watch(process);
  EXPECT_FALSE(host::ended(process));
  EXPECT_FALSE(watch.ended());
  EXPECT_TRUE(host::ended({process.id, process.start + 1}));
  child.end();
  EXPECT_TRUE(host::ended(process));
  EXPECT_TRUE(watch.ended());
  child.reap();
  EXPECT_TRUE(host::ended(process));
  EXPECT_TRUE(watch.ended());
}

TEST(HostProcess, IsAliveAsFarAsAnyoneKnowsWhereNoDescriptorIsLeft) {
  const Child child;
  const host::Process process = child.process();
  const NoDescriptors none;
  EXPECT_FALSE(host::ended(process));
  EXPECT_FALSE(host::Watch(process).ended());
  EXPECT_FALSE(host::ended({getpid(), 0}));
  child.end();
  child.reap();
  EXPECT_TRUE(host::ended(process));  // the system has no such process
}

TEST(HostProcess, EndsBeforeAWatcherWithoutDescriptors) {
  const Child child;
  const host::Watch watch(child.process());
  const NoDescriptors none;
  EXPECT_FALSE(watch.ended());
  child.end();
  EXPECT_TRUE(watch.ended());
}

// Also through a watcher that has no pidfd.
TEST(HostProcess, IsKilledAndNotTwice) {
  for (const bool has_descriptor : {true, false}) {
    const Child child;
    const host::Process process = child.process();
    std::optional<NoDescriptors> none;
    if (!has_descriptor) none.emplace();
    const host::Watch watch(process);
    none.reset();
    EXPECT_EQ(watch.descriptor() >= 0, has_descriptor);
    kill(process.id, SIGSTOP);
    watch.kill();
    int status = 0;
    EXPECT_EQ(waitpid(process.id, &status, 0), process.id);
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    watch.kill();
    EXPECT_TRUE(watch.ended());
  }
}

// A process whose number is this one's, and which started at another time, has ended.
TEST(HostProcess, IsNotKilledInPlaceOfAnEarlierOneOfItsNumber) {
  const Child child;
  const host::Process process = child.process();
  std::optional<NoDescriptors> none(std::in_place);
  const host::Watch watch({process.id, process.start + 1});
  none.reset();
  watch.kill();
  EXPECT_FALSE(host::ended(process));
}

TEST(HostProcess, SaysWhyItCannotSayWhoItIs) {
  const NoDescriptors none;
  EXPECT_THAT(error_of([] { host::this_process(); }),
              HasSubstr("/stat cannot be read: Too many open files; processes that share memory "));
}

TEST(HostRefusal, IsWhateverARankThrowsBeforeItsPeersGetItsLine) {
  EXPECT_EQ(host::attempt([] { return std::string("a line"); }), "a line");
  EXPECT_EQ(host::attempt([]() -> std::string { throw Error("no room"); }), "!no room");
  EXPECT_EQ(host::attempt([]() -> std::string { throw std::bad_alloc(); }), "!std::bad_alloc");
  EXPECT_THAT(host::attempt([]() -> std::string { throw 7; }), StartsWith("!an error without"));
}

}  // namespace
}  // namespace zero::test
