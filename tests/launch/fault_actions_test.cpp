// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/fault_actions.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>

#include "base/descriptor.h"
#include "base/error.h"
#include "tests/errors.h"
#include "tests/scratch.h"

// What faults do to a process: to one of their own.
namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A process that does `work` and then ends with status 7. Killed at the end of the scope.
class Child {
 public:
  explicit Child(const std::function<void()>& work) : id_(::fork()) {
    if (id_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const rlimit none{};
    ::setrlimit(RLIMIT_CORE, &none);
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's would report
    work();
    ::_exit(7);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (id_ <= 0) return;
    ::kill(id_, SIGKILL);
    if (!waited_) ::waitpid(id_, nullptr, 0);
  }

  /// The status with which the process ended, or was stopped.
  int wait() {
    int status = 0;
    ::waitpid(id_, &status, WUNTRACED);
    waited_ = !WIFSTOPPED(status);
    return status;
  }
  ::pid_t id() const { return id_; }

 private:
  ::pid_t id_;
  bool waited_ = false;
};

int status_of(int signal) {
  return Child([signal] { process_actions().signal(signal); }).wait();
}

TEST(FaultActions, KillAndSegvEndTheProcess) {
  for (const int signal : {SIGKILL, SIGSEGV}) {
    const int status = status_of(signal);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), signal);
  }
}

TEST(FaultActions, SegvOutlivesAHandlerThatReturns) {
  Child child([] {
    struct sigaction once {};
    once.sa_handler = [](int) {};
    once.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGSEGV, &once, nullptr);
    process_actions().signal(SIGSEGV);
  });
  const int status = child.wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
}

/// How a process that is the first one of a PID namespace, as a container's is, ends with `work`;
/// no value where this system has no such namespaces for us.
std::optional<int> status_of_first_process(const std::function<void()>& work) {
  const auto descriptors = [] {
    std::array<int, 2> both{};
    ZERO_CHECK(::pipe(both.data()) == 0, "pipe");
    return both;
  }();
  const Descriptor from(descriptors[0]);
  const Descriptor to(descriptors[1]);
  Child child([&] {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return;
    const ::pid_t first = ::fork();
    if (first == 0) {
      const rlimit seconds{2, 2};
      ::setrlimit(RLIMIT_CPU, &seconds);
      work();
      ::_exit(7);
    }
    int status = 0;
    ::waitpid(first, &status, 0);
    if (::write(to.get(), &status, sizeof status) != sizeof status) ::_exit(1);
    ::_exit(0);
  });
  if (child.wait() != 0) return std::nullopt;
  int status = 0;
  ZERO_CHECK(::read(from.get(), &status, sizeof status) == sizeof status, "read");
  return status;
}

TEST(FaultActions, SegvEndsAContainersFirstProcess) {
  const auto status = status_of_first_process([] { process_actions().signal(SIGSEGV); });
  if (!status) GTEST_SKIP() << "no namespaces";
  EXPECT_TRUE(WIFSIGNALED(*status) && WTERMSIG(*status) == SIGSEGV) << *status;
}

TEST(FaultActions, SignalsThatAContainersFirstProcessIgnoresAreRefused) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const auto status = status_of_first_process([signal] {
      try {
        process_actions().signal(signal);
      } catch (const Error&) {
        ::_exit(3);
      }
    });
    if (!status) GTEST_SKIP() << "no namespaces";
    EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 3) << *status;
  }
}

TEST(FaultActions, StopStopsTheProcessWhichGoesOnWhenTold) {
  Child child([] { process_actions().signal(SIGSTOP); });
  EXPECT_TRUE(WIFSTOPPED(child.wait()));
  ::kill(child.id(), SIGCONT);
  const int status = child.wait();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

// The limit of processor time ends what would go on for ever.
TEST(FaultActions, TheLoopUsesACore) {
  Child child([] {
    const rlimit second{1, 1};
    ::setrlimit(RLIMIT_CPU, &second);
    process_actions().loop();
  });
  const int status = child.wait();
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGXCPU);
}

/// Two ends of a TCP connection on this host.
struct Connection {
  Descriptor listener{::socket(AF_INET, SOCK_STREAM, 0)};
  Descriptor near{::socket(AF_INET, SOCK_STREAM, 0)};
  Descriptor far{-1};

  Connection() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    ZERO_CHECK(::bind(listener.get(), any, size) == 0, "bind");
    ZERO_CHECK(::listen(listener.get(), 1) == 0, "listen");
    ZERO_CHECK(::getsockname(listener.get(), any, &size) == 0, "getsockname");
    ZERO_CHECK(::connect(near.get(), any, size) == 0, "connect");
    far = Descriptor(::accept(listener.get(), nullptr, nullptr));
  }
};

// In a process of its own: another test's connections stay.
TEST(FaultActions, CutEndsConnectionsOfTcpAndNothingElse) {
  Child child([] {
    const Connection connection;
    std::array<int, 2> local{-1, -1};
    ZERO_CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, local.data()) == 0, "socketpair");
    char byte = 0;
    const bool cut = cut_tcp_connections() >= 2;  // both ends are here
    const bool ended = ::read(connection.near.get(), &byte, 1) == 0 &&
                       ::send(connection.far.get(), &byte, 1, MSG_NOSIGNAL) < 0;
    const bool local_lives = ::write(local[0], "x", 1) == 1 && ::read(local[1], &byte, 1) == 1;
    ::_exit(cut && ended && local_lives ? 0 : 1);
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(FaultActions, MemoryIsLimitedByAGroupBelowTheMachine) {
  const Scratch root;
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root.path(path)).parent_path());
    root.write(path, text);
  };
  write("proc/meminfo", "MemTotal:       16000 kB\nMemFree:    8000 kB\nMemAvailable:  8000 kB\n");
  write("proc/self/cgroup", "0::/job\n");
  write("sys/fs/cgroup/job/memory.max", "max\n");
  EXPECT_FALSE(memory_is_limited(root.path()));
  write("sys/fs/cgroup/job/memory.max", "1000000\n");
  EXPECT_TRUE(memory_is_limited(root.path()));
  write("sys/fs/cgroup/job/memory.max", "99000000\n");
  EXPECT_FALSE(memory_is_limited(root.path()));
}

// Taking memory for real would take the tests' own.
TEST(FaultActions, MemoryIsNotTakenWithoutALimit) {
  if (memory_is_limited()) GTEST_SKIP() << "a control group limits this process";
  EXPECT_THAT(
      error_of([] { process_actions().fill_memory(); }),
      HasSubstr("run.faults: out_of_memory: no control group limits this process's memory"));
}

TEST(FullDisk, RefusesWhatNeedsRoomAndNothingElse) {
  const Scratch folder;
  FullDisk disk(files::disk());
  const std::string there = folder.write("there", "abc");
  disk.make_folder(folder.path("made"));
  disk.fill_until(FullDisk::Clock::time_point::max());
  const std::string none = "No space left on device (run.faults: disk_full)";
  EXPECT_THAT(error_of([&] { disk.create(folder.path("a"), 10); }),
              HasSubstr(folder.path("a") + ": cannot create: " + none));
  EXPECT_THAT(error_of([&] { disk.make_folder(folder.path("b")); }), HasSubstr(none));
  EXPECT_THAT(error_of([&] { disk.create_scratch(folder.path(), 10); }), HasSubstr(none));
  EXPECT_EQ(disk.free_bytes(folder.path()), 0);
  EXPECT_EQ(disk.open_read(there)->size(), 3);
  EXPECT_EQ(disk.kind_of(there), files::PathKind::file);
  disk.open_write(there)->write(0, std::as_bytes(std::span("x", 1)));
  disk.rename(there, folder.path("moved"));
  EXPECT_THAT(disk.list(folder.path()), ElementsAre("made", "moved"));
  EXPECT_THAT(disk.open_folder(folder.path())->list(), ElementsAre("made", "moved"));
  disk.sync_folder(folder.path());
  disk.remove_file(folder.path("moved"));
  disk.remove_folder(folder.path("made"));
  EXPECT_TRUE(folder.names().empty());
}

TEST(FullDisk, HasRoomAgainBehindItsTime) {
  const Scratch folder;
  FullDisk disk(files::disk());
  disk.fill_until(FullDisk::Clock::now() - std::chrono::seconds(1));
  disk.create(folder.path("a"), 10);
  EXPECT_GT(disk.free_bytes(folder.path()), 0);
  const auto queue = disk.queue({}, {.depth = 1, .threads = 1});
  const auto file = disk.open_write(folder.path("a"));
  queue->wait(queue->write(*file, 0, std::as_bytes(std::span("x", 1))));
  EXPECT_FALSE(disk.io_description().empty());
  EXPECT_FALSE(disk.is_link(folder.path("a")));
  EXPECT_EQ(folder.read("a").substr(0, 1), "x");
}

}  // namespace
}  // namespace zero::testing
