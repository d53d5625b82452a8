// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <functional>

#include "base/page.h"
#include "collectives/backends.h"
#include "collectives/host/region.h"
#include "collectives/host/shared_file.h"
#include "collectives/in_process_store.h"
#include "tests/collectives/host_ranks.h"
#include "tests/collectives/messages.h"

namespace zero::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::int64_t kBytes = 4 * page_bytes();
constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr uid_t kNobody = 65534;

std::string error_of(const host::Invitation& invitation) {
  return message_of([&] { host::opened(invitation); });
}

// The message for an invitation that names `descriptor` of this process in place of its own.
std::string error_with(host::Invitation invitation, int descriptor) {
  invitation.descriptor = descriptor;
  return error_of(invitation);
}

Descriptor memory_file(std::int64_t bytes, int seals) {
  Descriptor file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ZERO_CHECK(ftruncate(file.get(), bytes) == 0, "ftruncate to {}", bytes);
  ZERO_CHECK(seals == 0 || fcntl(file.get(), F_ADD_SEALS, seals) == 0, "seals {}", seals);
  return file;
}

// A file of this test in a directory of its own, which is removed with what is in it.
class TemporaryFile {
 public:
  TemporaryFile() { ZERO_CHECK(mkdtemp(directory_.data()) != nullptr, "mkdtemp"); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    unlink(path().c_str());
    rmdir(directory_.c_str());
  }
  std::string path() const { return directory_ + "/file"; }

 private:
  std::string directory_ = "/tmp/zero_shared_file_XXXXXX";
};

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
          : error_of(host::Invitation::parse({line.data(), static_cast<std::size_t>(length)}));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  return message;
}

TEST(HostSharedFile, IsOneMemoryForWhoeverIsInvited) {
  const host::SharedFile file("test", kBytes);
  const Descriptor other = host::opened(host::Invitation::parse(file.invitation().text()));
  const host::Span mine(file.descriptor(), kBytes, PROT_READ | PROT_WRITE);
  const host::Span theirs(other.get(), kBytes, PROT_READ | PROT_WRITE);
  mine.data()[kBytes - 1] = std::byte{7};
  EXPECT_EQ(theirs.data()[kBytes - 1], std::byte{7});
}

TEST(HostSharedFile, KeepsItsSizeForever) {
  const host::SharedFile file("test", kBytes);
  EXPECT_NE(ftruncate(file.descriptor(), kBytes), 0);
  EXPECT_NE(ftruncate(file.descriptor(), 4 * kBytes), 0);
  EXPECT_NE(fcntl(file.descriptor(), F_ADD_SEALS, F_SEAL_WRITE), 0);
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
    return message_of([&] { host::Invitation::parse(text); });
  };
  EXPECT_EQ(parse("come in"),
            "\"come in\" is no invitation to a process's memory: the number of words is wrong; "
            "expected \"PROCESS START PID_NAMESPACE USER_NAMESPACE DESCRIPTOR BYTES TOKEN\"");
  for (const std::string& wrong : {std::string(), std::string("/tmp/file"), line + " ", " " + line,
                                   line + "0", line + " 1", line.substr(0, line.size() - 1)}) {
    EXPECT_THAT(parse(wrong), HasSubstr("is no invitation to a process's memory")) << wrong;
  }
  EXPECT_THAT(parse("a\nb\x1b"), HasSubstr("\"a?b?\""));
  EXPECT_LT(parse(std::string(100'000, 'x')).size(), 2000U);
}

TEST(HostInvitation, NamesTheWordThatIsWrong) {
  const std::string token(32, 'f');
  const auto parse = [&](std::size_t word, const std::string& instead) {
    std::vector<std::string> words{
        "12", "345", "pid:[4026531836]", "user:[4026531837]", "3", std::to_string(2 * page_bytes()),
        token};
    words[word] = instead;
    return message_of([&] { host::Invitation::parse(fmt::format("{}", fmt::join(words, " "))); });
  };
  EXPECT_EQ(parse(0, "12"), "no error");
  for (const char* const wrong : {"0", "-1", "+1", "4294967296", "1x", "self", ".."}) {
    EXPECT_THAT(parse(0, wrong), HasSubstr("PROCESS is wrong")) << wrong;
  }
  EXPECT_THAT(parse(1, "-5"), HasSubstr("START is wrong"));
  for (const char* const wrong : {"pid:[../1]", "pid:[]", "user:[4026531837]", ""}) {
    EXPECT_THAT(parse(2, wrong), HasSubstr("PID_NAMESPACE is wrong")) << wrong;
  }
  for (const char* const wrong : {"user:[../1]", "user:[-1]", "pid:[4026531836]", ""}) {
    EXPECT_THAT(parse(3, wrong), HasSubstr("USER_NAMESPACE is wrong")) << wrong;
  }
  for (const char* const wrong : {"-1", "3/../../1", "2147483648", "0x3"}) {
    EXPECT_THAT(parse(4, wrong), HasSubstr("DESCRIPTOR is wrong")) << wrong;
  }
  for (const char* const wrong : {"0", "4097", "-4096", "9223372036854771712", "1e6"}) {
    EXPECT_THAT(parse(5, wrong), HasSubstr("BYTES is wrong")) << wrong;
  }
  EXPECT_THAT(parse(6, token + "f"), HasSubstr("TOKEN is wrong"));
  EXPECT_THAT(parse(6, "-" + token.substr(1)), HasSubstr("TOKEN is wrong"));
}

TEST(HostInvitation, ToAnotherProcessThanItNamesIsRefused) {
  const host::SharedFile file("test", kBytes);
  host::Invitation to = file.invitation();
  to.space = "pid:[1]";
  EXPECT_THAT(error_of(to), HasSubstr("runs in another PID namespace, pid:[1]; this one in pid:["));
  to = file.invitation();
  to.process.start += 1;
  EXPECT_EQ(error_of(to),
            fmt::format("/proc/{} began at clock tick {}, expected {}: it is not the process that "
                        "invited",
                        to.process.id, to.process.start - 1, to.process.start));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  to.process.id = child;
  EXPECT_EQ(error_of(to),
            fmt::format("/proc/{} cannot be opened: No such file or directory", child));
}

TEST(HostInvitation, ToAPipeIsRefusedBeforeThePipeIsOpened) {
  const host::SharedFile file("test", kBytes);
  const TemporaryFile place;
  ASSERT_EQ(mkfifo(place.path().c_str(), 0600), 0);
  // To open this pipe for reading and writing would let a writer in; nobody must.
  const Descriptor pipe(open(place.path().c_str(), O_PATH | O_CLOEXEC));
  EXPECT_THAT(error_with(file.invitation(), pipe.get()),
              AllOf(HasSubstr(fmt::format("/proc/{}/fd/{}", getpid(), pipe.get())),
                    HasSubstr("has file type 10000, expected a regular file (100000)")));
  const int writer = open(place.path().c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_LT(writer, 0);
  const Descriptor device(open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_THAT(error_with(file.invitation(), device.get()), HasSubstr("has file type 20000"));
}

TEST(HostInvitation, ToAFileThatIsNotSharedMemoryIsRefused) {
  const host::SharedFile file("test", kBytes);
  const host::Invitation to = file.invitation();
  EXPECT_THAT(error_with(to, 9999), HasSubstr("/fd/9999 cannot be opened: No such file"));
  const Descriptor on_disk(open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(error_with(to, on_disk.get()),
              HasSubstr("is on a file system of type 0x9fa0, expected one in memory (tmpfs, "));
  const Descriptor open_ended = memory_file(kBytes + page_bytes(), 0);
  EXPECT_THAT(error_with(to, open_ended.get()),
              HasSubstr("has the seals 0x0, expected 0x7: it is not memory that a rank shares"));
  const Descriptor growing = memory_file(kBytes + page_bytes(), F_SEAL_SHRINK | F_SEAL_SEAL);
  EXPECT_THAT(error_with(to, growing.get()), HasSubstr("has the seals 0x3, expected 0x7"));
  const Descriptor small = memory_file(kBytes, kAllSeals);
  EXPECT_THAT(error_with(to, small.get()),
              HasSubstr(fmt::format("has {} bytes, expected {}", kBytes, kBytes + page_bytes())));
  const Descriptor large = memory_file(kBytes + 2 * page_bytes(), kAllSeals);
  EXPECT_THAT(error_with(to, large.get()),
              HasSubstr(fmt::format("has {} bytes, expected {}", kBytes + 2 * page_bytes(),
                                    kBytes + page_bytes())));
  const host::SharedFile other("test", kBytes);
  EXPECT_THAT(error_with(to, other.descriptor()),
              HasSubstr("holds another token than the invitation: it is another job's file"));
}

TEST(HostInvitation, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make files and processes of other users";
  const host::SharedFile file("test", kBytes);
  const Descriptor theirs = memory_file(kBytes + page_bytes(), 0);
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
      message_of([&] {
        host::world({store, 0, 2});
      }),
      fmt::format("[rank 0] the ranks cannot share memory: rank 0: process {} runs in another user "
                  "namespace (a container for each rank), user:[1]; this one in {}; start the "
                  "launcher inside one container, or share the namespace (apptainer --sharens); "
                  "without MPI, processes that compute on the CPU are those of one host, one user "
                  "and one container: start others with mpirun, or as threads with --local-ranks",
                  getpid(), host::user_namespace()));
}

TEST(HostMemory, MeetsAPeerOnceAndNobodyElse) {
  host::Memory memory(2);
  host::Memory other(2);
  EXPECT_THAT(message_of([&] { memory.meet("come in"); }),
              StartsWith("\"come in\" is no invitation to a process's memory"));
  EXPECT_EQ(memory.meet(other.invitation()), memory.meet(other.invitation()));
}

// What came through a store or a socket is forged: in the line of rank 0 that invites to the board
// stands a path, or an invitation to a file of the right size that is none of the job's.
std::vector<std::string> join_with(const std::function<std::string(const std::string&)>& forge) {
  HostRanks ranks(2);
  std::vector<std::string> ends(2);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto all_gather_texts = ranks.all_gather_texts_of(rank);
      int round = 0;
      const auto forged = [&](const std::string& mine) {
        auto lines = all_gather_texts(mine);
        if (++round == 2 && rank == 1) lines[0] = forge(lines[0]);
        return lines;
      };
      ends[static_cast<std::size_t>(rank)] = message_of([&] {
        const auto memory = std::make_shared<host::Memory>(2);
        throw Error(host::Group::join(memory, "", {rank, 2}, forged).refusal);
      });
    });
  }
  threads.clear();
  return ends;
}

TEST(HostInvitation, ThatIsAPathOpensNothing) {
  const TemporaryFile victim;
  const Descriptor file(open(victim.path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const std::int64_t bytes = host::Board::bytes_for(2);
  ASSERT_EQ(ftruncate(file.get(), bytes), 0);
  EXPECT_THAT(join_with([&](const std::string&) { return victim.path(); }),
              Each(AllOf(HasSubstr("rank 1: "), HasSubstr("is no invitation to a process's"))));
  std::vector<char> content(static_cast<std::size_t>(bytes));
  ASSERT_EQ(pread(file.get(), content.data(), content.size(), 0), bytes);
  EXPECT_EQ(content, std::vector<char>(content.size()));
}

TEST(HostInvitation, ToABoardIsRankZerosAndOfTheBoardsSize) {
  const host::SharedFile other("test", kBytes);
  EXPECT_THAT(
      join_with([&](const std::string&) { return other.invitation().text(); }),
      Each(HasSubstr(fmt::format("rank 1: rank 0 invites to {} bytes of memory, expected {}",
                                 kBytes, host::Board::bytes_for(2)))));
  EXPECT_THAT(join_with([&](const std::string& line) {
                host::Invitation to = host::Invitation::parse(line);
                to.process.id = 1;
                return to.text();
              }),
              Each(HasSubstr(fmt::format("rank 0 invites to memory of process 1, expected its own, "
                                         "{}",
                                         getpid()))));
}

}  // namespace
}  // namespace zero::test
