// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>

#include "base/host.h"
#include "collectives/backends.h"
#include "collectives/host/memory.h"
#include "collectives/stores.h"
#include "tests/collectives/host_ranks.h"
#include "tests/errors.h"

namespace zero::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::int64_t kBytes = 4 * page_bytes();
constexpr uid_t kNobody = 65534;

std::string refusal_of(const host::Invitation& invitation) {
  return error_of([&] { host::opened(invitation); });
}

// The message for an invitation that names `descriptor` of this process in place of its own.
std::string error_with(host::Invitation invitation, int descriptor) {
  invitation.descriptor = descriptor;
  return refusal_of(invitation);
}

Descriptor memory_file(std::int64_t bytes) {
  Descriptor file(memfd_create("test", MFD_CLOEXEC));
  ZERO_CHECK(ftruncate(file.get(), bytes) == 0, "ftruncate to {}", bytes);
  return file;
}

// The message of opening what another process invites to. That process first goes elsewhere with
// `leave`; if the system does not let it, the message is "".
std::string error_of_one_who(const std::function<bool()>& leave) {
  std::array<int, 2> ready{};
  ZERO_CHECK(pipe2(ready.data(), O_CLOEXEC) == 0, "pipe2");
  const pid_t child = fork();
  if (child == 0) {
    if (!leave()) _exit(1);
    prctl(PR_SET_DUMPABLE, 1);  // as after a program's start
    const host::SharedFile own("test", kBytes);
    const std::string line = own.invitation().text();
    static_cast<void>(write(ready[1], line.data(), line.size()));
    pause();
    _exit(0);
  }
  close(ready[1]);
  std::array<char, 256> line{};
  const ssize_t length = read(ready[0], line.data(), line.size());
  const std::string message =
      length <= 0
          ? ""
          : refusal_of(host::Invitation::parse({line.data(), static_cast<std::size_t>(length)}));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  return message;
}

TEST(HostSharedFile, IsOneMemoryForWhoeverIsInvited) {
  const host::SharedFile file("test", kBytes);
  const Descriptor other = host::opened(host::Invitation::parse(file.invitation().text()));
  const host::Mapping mine(file.descriptor(), kBytes, PROT_READ | PROT_WRITE);
  const host::Mapping theirs(other.get(), kBytes, PROT_READ | PROT_WRITE);
  mine.data()[kBytes - 1] = std::byte{7};
  EXPECT_EQ(theirs.data()[kBytes - 1], std::byte{7});
}

TEST(HostSharedFile, HasATokenOfItsOwn) {
  const host::SharedFile one("test", kBytes);
  const host::SharedFile other("test", kBytes);
  EXPECT_NE(one.invitation().token, other.invitation().token);
}

TEST(HostInvitation, IsReadAsItWasWrittenAndOnlySo) {
  const host::SharedFile file("test", kBytes);
  const std::string line = file.invitation().text();
  EXPECT_EQ(host::Invitation::parse(line).text(), line);
  const auto parse = [](const std::string& text) {
    return error_of([&] { host::Invitation::parse(text); });
  };
  EXPECT_EQ(parse("come in"),
            "\"come in\" is no invitation to a process's memory, expected \"PROCESS START "
            "PID_NAMESPACE USER_NAMESPACE DESCRIPTOR BYTES TOKEN TOKEN\"");
  for (const std::string& wrong : {std::string(), std::string("/tmp/file"), line + " ", line + " 1",
                                   line.substr(0, line.rfind(' '))}) {
    EXPECT_THAT(parse(wrong), HasSubstr("is no invitation to a process's memory")) << wrong;
  }
}

TEST(HostInvitation, ToAnotherProcessThanItNamesIsRefused) {
  const host::SharedFile file("test", kBytes);
  host::Invitation to = file.invitation();
  to.space = "pid:[1]";
  EXPECT_THAT(refusal_of(to),
              HasSubstr("runs in another PID namespace, pid:[1]; this one in pid:["));
  to = file.invitation();
  to.process.start += 1;
  EXPECT_EQ(refusal_of(to),
            fmt::format("/proc/{} began at clock tick {}, expected {}: it is not the process that "
                        "invited",
                        to.process.id, to.process.start - 1, to.process.start));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  to.process.id = child;
  EXPECT_EQ(refusal_of(to),
            fmt::format("/proc/{} cannot be opened: No such file or directory", child));
}

TEST(HostInvitation, ToAFileThatIsNotTheOneMeantIsRefused) {
  const host::SharedFile file("test", kBytes);
  const host::Invitation to = file.invitation();
  EXPECT_THAT(error_with(to, 9999), HasSubstr("/fd/9999 cannot be opened: No such file"));
  for (const std::int64_t bytes : {kBytes, kBytes + 2 * page_bytes()}) {
    const Descriptor other = memory_file(bytes);
    EXPECT_THAT(error_with(to, other.get()),
                HasSubstr(fmt::format("has {} bytes, expected {}", bytes, kBytes + page_bytes())));
  }
  const host::SharedFile other("test", kBytes);
  EXPECT_THAT(error_with(to, other.descriptor()),
              HasSubstr("holds another token than the invitation: it is another job's file"));
}

TEST(HostInvitation, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make files and processes of other users";
  const host::SharedFile file("test", kBytes);
  const Descriptor theirs = memory_file(kBytes + page_bytes());
  ASSERT_EQ(fchown(theirs.get(), kNobody, kNobody), 0);
  EXPECT_THAT(error_with(file.invitation(), theirs.get()),
              HasSubstr("is a file of user 65534, expected one of user 0"));
  EXPECT_THAT(error_of_one_who([] { return setgid(kNobody) == 0 && setuid(kNobody) == 0; }),
              HasSubstr("is of user 65534, expected user 0; start all ranks as one user"));
}

TEST(HostInvitation, OfAnotherUserNamespaceIsRefusedWithWhatToDo) {
  const std::string message = error_of_one_who([] { return unshare(CLONE_NEWUSER) == 0; });
  if (message.empty()) GTEST_SKIP() << "the system lets this user make no user namespace";
  EXPECT_THAT(message, AllOf(HasSubstr(" runs in another user namespace (a container for each "
                                       "rank), user:["),
                             HasSubstr("]; this one in " + host::user_namespace() +
                                       "; start the launcher inside one container, or share the "
                                       "namespace (apptainer --sharens)")));
}

TEST(HostInvitation, OfAnotherUserNamespaceEndsAJobWithoutMpiWithTheSameAdvice) {
  const host::SharedFile file("test", kBytes);
  host::Invitation theirs = file.invitation();
  theirs.users = "user:[1]";
  InProcessStore store;  // rank 1 has said all that it has to say
  store.set("host/line/0/1", theirs.text());
  store.set("host/line/1/1", "-");
  EXPECT_EQ(
      error_of([&] {
        host::world({store, 0, 2});
      }),
      fmt::format("[rank 0] the ranks cannot share memory: rank 0: process {} runs in another user "
                  "namespace (a container for each rank), user:[1]; this one in {}; start the "
                  "launcher inside one container, or share the namespace (apptainer --sharens); "
                  "without MPI, processes that compute on the CPU are those of one host, one user "
                  "and one container: start others with mpirun, or as threads with --local-ranks",
                  getpid(), host::user_namespace()));
}

TEST(HostMemory, ConnectsToAPeerOnceAndToNobodyElse) {
  host::Memory memory(2);
  host::Memory other(2);
  EXPECT_THAT(error_of([&] { memory.connect("come in"); }),
              StartsWith("\"come in\" is no invitation to a process's memory"));
  EXPECT_EQ(memory.connect(other.invitation()), memory.connect(other.invitation()));
}

TEST(HostMemory, ReachesNothingOutsideAPeersRegion) {
  host::Memory memory(2);
  host::Memory other(2);
  const auto peer = memory.connect(other.invitation());
  const std::int64_t whole = other.region().capacity();
  EXPECT_NE(memory.access(*peer, whole - 1, 1), nullptr);
  for (const auto& [offset, bytes] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {whole, 1}, {-1, 1}, {0, -1}, {0, whole + 1}, {whole - 4, 5}}) {
    EXPECT_EQ(error_of([&] { memory.access(*peer, offset, bytes); }),
              fmt::format("{} bytes at offset {} of a peer's memory, expected a range in its {} "
                          "bytes",
                          bytes, offset, whole));
  }
}

TEST(HostInvitation, ToAControlBlockOfAnotherSizeIsRefused) {
  HostRanks ranks(2);
  std::vector<std::string> ends(2);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto all_gather_texts = ranks.all_gather_texts_of(rank);
      int round = 0;
      const auto other_version = [&](const std::string& mine) {
        auto lines = all_gather_texts(mine);
        if (++round == 2 && rank == 1) {
          host::Invitation to = host::Invitation::parse(lines[0]);
          to.bytes = kBytes;
          lines[0] = to.text();
        }
        return lines;
      };
      ends[static_cast<std::size_t>(rank)] = error_of([&] {
        const auto memory = std::make_shared<host::Memory>(2);
        throw Error(HostTransport::join(memory, "", {rank, 2}, other_version).refusal);
      });
    });
  }
  threads.clear();
  EXPECT_THAT(
      ends, Each(HasSubstr(fmt::format("rank 1: rank 0 invites to {} bytes of memory, expected {}",
                                       kBytes, host::ControlBlock::bytes_for(2)))));
}

}  // namespace
}  // namespace zero::test
