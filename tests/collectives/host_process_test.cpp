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
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <thread>

#include "collectives/host/process.h"
#include "collectives/host/shared_file.h"
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
  return host::activity({kNumber, kStart}, root.path());
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
  const std::int64_t ticks = std::int64_t{7} * 1'000'000'000 / sysconf(_SC_CLK_TCK);  // each field is 7
  EXPECT_EQ(runs->cpu, 2 * ticks);
  EXPECT_EQ(runs->kernel, ticks);
  EXPECT_EQ(runs->faults, 14);
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
    const auto begin = host::activity(process);
    ASSERT_TRUE(begin);
    std::optional<host::Activity> end;
    while (!end || end->cpu < begin->cpu + 300'000'000) end = host::activity(process);
    const std::int64_t ran = end->cpu - begin->cpu;
    const std::int64_t kernel = end->kernel - begin->kernel;
    EXPECT_EQ(kernel * 5 > ran, touches) << kernel << " of " << ran;
    EXPECT_EQ(end->faults - begin->faults > 30, touches) << end->faults - begin->faults;
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
  }
}

// Of a program with several threads, what any of them does; not what the caller does.
TEST(HostProcess, DoesWhatItsOtherThreadsDo) {
  std::atomic<bool> ends{false};
  std::thread spins([&] {
    while (!ends) {
    }
  });
  bool runnable = false;
  while (!runnable) {
    const auto others = host::activity(host::this_process());
    runnable = others && others->runnable;
  }
  ends = true;
  spins.join();
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
