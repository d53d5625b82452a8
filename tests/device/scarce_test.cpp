// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// The disk's queues on systems that are short of threads, memory or answers: transfers end all the
// same, by calls of the thread that waits, or with a message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "device/cpu/memory.h"
#include "files/file_system.h"
#include "files/pwrite_queue.h"
#include "files/uring_queue.h"
#include "tests/device/named_threads.h"
#include "tests/device/restricted_thread.h"
#include "tests/device/supervised_thread.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero::files {
namespace {

using testing::give_up_root;
using ::testing::HasSubstr;
using testing::kCallerCalls;
using testing::on_own_thread;
using testing::on_supervised_thread;
using zero::error_of;

constexpr std::int64_t kScarceBytes = 4 << 20;

class Scarce : public ::testing::Test {
 protected:
  Scarce() { std::ranges::fill(memory_, std::byte{7}); }
  ~Scarce() override { cpu::free_memory(memory_.data(), kScarceBytes); }

  std::string path() const { return scratch_.path("file"); }
  /// Writes `part` and reads it back through `queue`; expects success.
  void use(TransferQueue& queue, std::span<const std::byte> part) {
    const auto output = disk().create(path(), std::ssize(part));
    queue.wait(queue.write(*output, 0, part));
    const auto input = disk().open_read(path());
    std::vector<std::byte> found(part.size());
    queue.wait(queue.read(*input, 0, found));
    EXPECT_TRUE(std::ranges::equal(found, part));
  }

  testing::Scratch scratch_;
  std::span<std::byte> memory_{static_cast<std::byte*>(cpu::allocate_memory(kScarceBytes)),
                               static_cast<std::size_t>(kScarceBytes)};
};

/// While it lives, the process has a lower limit, if it may have one so high.
class Limit {
 public:
  Limit(decltype(RLIMIT_NPROC) kind, rlim_t value) : kind_(kind) {
    if (::getrlimit(kind_, &before_) != 0) return;
    const rlimit low{value, before_.rlim_max};
    holds_ = value <= before_.rlim_max && ::setrlimit(kind_, &low) == 0;
  }
  ~Limit() {
    if (holds_) ::setrlimit(kind_, &before_);
  }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
  bool holds() const { return holds_; }

 private:
  decltype(RLIMIT_NPROC) kind_;
  rlimit before_{};
  bool holds_ = false;
};

// What the kernel can only transfer on a thread of its own, as parts of blocks are.
TEST_F(Scarce, WhereTheKernelMayMakeNoThreadForARingTheCallerTransfers) {
  if (!open_uring_queue({}, {}).queue) GTEST_SKIP() << open_uring_queue({}, {}).note;
  ASSERT_EQ(::chmod(scratch_.path().c_str(), 0777), 0);
  EXPECT_EQ(on_own_thread([&] {
              ASSERT_TRUE(give_up_root());
              const Limit limit(RLIMIT_NPROC, 1);
              ASSERT_TRUE(limit.holds());
              const auto queue = open_uring_queue({}, {.depth = 4}).queue;
              ASSERT_TRUE(queue);
              for (const std::size_t begin : {0, 1}) use(*queue, memory_.subspan(begin));
              use(*disk().queue(memory_, {.depth = 4}), memory_.subspan(1));
            }),
            "no error");
}

/// The ends of calls that the kernel tells a ring, in the memory that it shares with the process.
class Ends {
 public:
  /// Of a ring of this descriptor and depth.
  Ends(int ring, unsigned depth) {
    io_uring_params same{};
    const Descriptor another(static_cast<int>(::syscall(SYS_io_uring_setup, depth, &same)));
    offsets_ = same.cq_off;
    memory_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
  }
  ~Ends() { ::munmap(memory_, kBytes); }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  unsigned count() const { return std::atomic_ref(word(offsets_.tail)).load(); }
  /// Gives the newest one another result.
  void change(int result) {
    const unsigned last = (count() - 1) & word(offsets_.ring_mask);
    at<io_uring_cqe>(offsets_.cqes)[last].res = result;  // NOLINT
  }

 private:
  static constexpr std::size_t kBytes = 4096;
  template <typename T>
  T* at(std::uint32_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(memory_) + offset);
  }
  unsigned& word(std::uint32_t offset) const { return *at<unsigned>(offset); }

  io_cqring_offsets offsets_{};
  void* memory_;
};

TEST_F(Scarce, ACallThatTheKernelHandsBackIsMadeByTheCallerAndNotAskedForAgain) {
  if (!open_uring_queue({}, {}).queue) GTEST_SKIP() << open_uring_queue({}, {}).note;
  for (const int error : {EAGAIN, ECANCELED}) {
    const auto output = disk().create(path(), kScarceBytes);
    const std::vector<std::byte> zeros(memory_.size());
    unsigned given = 0;
    const auto answer = [&](const testing::SystemCall& asked) {
      const long result = asked.run();
      if (result != 1 || asked.arguments[1] == 0 || ++given > 3) return result;
      Ends ends(static_cast<int>(asked.arguments[0]), 1);
      for (int i = 0; i < 10'000 && ends.count() < given; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ends.change(-error);
      output->write(0, zeros);
      return result;
    };
    const std::string ended = on_supervised_thread(SYS_io_uring_enter, answer, [&] {
      const auto queue = open_uring_queue({}, {.depth = 1}).queue;
      queue->wait(queue->write(*output, 0, memory_));
    });
    if (ended == testing::kNoSupervision) GTEST_SKIP() << ended;
    EXPECT_EQ(ended, "no error");
    EXPECT_EQ(given, 1) << error;
    EXPECT_EQ(testing::file_bytes(path()), std::string(memory_.size(), '\7')) << error;
  }
}

TEST_F(Scarce, ARingThatTheKernelHasNoResourcesForIsGivenUpAfterAWhile) {
  if (!open_uring_queue({}, {}).queue) GTEST_SKIP() << open_uring_queue({}, {}).note;
  for (const int error : {EAGAIN, EBUSY}) {
    const auto answer = [&](const testing::SystemCall&) -> long { return -error; };
    const std::string ended = on_supervised_thread(SYS_io_uring_enter, answer, [&] {
      const auto queue =
          open_uring_queue({}, {.depth = 2, .patience = std::chrono::milliseconds(20)}).queue;
      use(*queue, memory_);
    });
    if (ended == testing::kNoSupervision) GTEST_SKIP() << ended;
    EXPECT_EQ(ended, "no error") << error;
  }
}

TEST_F(Scarce, ARingThatTellsOfNoEndFailsItsTransfersByNameAndLaterOnesGoOn) {
  if (!open_uring_queue({}, {}).queue) GTEST_SKIP() << open_uring_queue({}, {}).note;
  unsigned given = 0;
  const auto loses = [&](const testing::SystemCall& asked) -> long {
    given += static_cast<unsigned>(asked.arguments[1]);
    return asked.arguments[1] > 0 ? static_cast<long>(asked.arguments[1]) : -EBADF;
  };
  const std::string ended = on_supervised_thread(SYS_io_uring_enter, loses, [&] {
    const auto output = disk().create(path(), kScarceBytes);
    const auto queue =
        open_uring_queue(
            {}, {.depth = 2, .one_by_one = false, .patience = std::chrono::milliseconds(20)})
            .queue;
    const auto first = queue->write(*output, 0, memory_.first(4096));
    const auto second = queue->write(*output, 4096, memory_.first(4096));
    for (const auto ticket : {first, second}) {
      EXPECT_EQ(error_of([&] { queue->wait(ticket); }),
                path() + ": io_uring does not tell how a transfer ended: Bad file descriptor");
    }
    use(*queue, memory_);
  });
  if (ended == testing::kNoSupervision) GTEST_SKIP() << ended;
  EXPECT_EQ(ended, "no error");
  EXPECT_EQ(given, 2);
}

// A ring that has ended keeps its memory locked for a while, if nothing takes it back before.
TEST_F(Scarce, RingsInTurnsMayEachRegisterTheirMemory) {
  if (!open_uring_queue({}, {}).queue) GTEST_SKIP() << open_uring_queue({}, {}).note;
  EXPECT_EQ(on_own_thread([&] {
              ASSERT_TRUE(give_up_root());
              const Limit limit(RLIMIT_MEMLOCK, kScarceBytes + kScarceBytes / 2);
              if (!limit.holds()) GTEST_SKIP() << "too little memory may be locked";
              for (int i = 0; i < 30; ++i) {
                ASSERT_EQ(open_uring_queue(memory_, {.depth = 4}).note, "registered buffers") << i;
              }
            }),
            "no error");
}

TEST_F(Scarce, AsManyThreadsTransferAsCanBeMade) {
  std::vector<long> calls{SYS_clone};
#ifdef SYS_clone3
  calls.push_back(SYS_clone3);
#endif
  for (const int allowed : {0, 1, 3}) {
    int made = 0;
    const auto answer = [&](const testing::SystemCall&) -> long {
      return made < allowed ? (++made, kCallerCalls) : -EAGAIN;
    };
    const std::string ended = on_supervised_thread(calls, answer, [&] {
      const std::string name = "scarce " + std::to_string(allowed);
      ASSERT_EQ(::prctl(PR_SET_NAME, name.c_str()), 0);
      PwriteQueue queue({.depth = 8, .threads = 4});
      EXPECT_EQ(testing::threads_named(name), 1 + allowed);
      EXPECT_EQ(queue.note(), std::to_string(allowed) +
                                  " of 4 threads: Resource temporarily unavailable (ulimit -u and "
                                  "pids.max bound them)");
      use(queue, memory_);
      const auto output = disk().create(path(), 0);
      const auto bad = queue.write(*output, -1, memory_);
      EXPECT_THAT(error_of([&] { queue.wait(bad); }), HasSubstr("Invalid argument"));
    });
    if (ended == testing::kNoSupervision) GTEST_SKIP() << ended;
    EXPECT_EQ(ended, "no error");
  }
  EXPECT_EQ(PwriteQueue({.depth = 8, .threads = 4}).note(), "");
}

TEST_F(Scarce, ACallThatTheSystemHasNoResourcesForIsMadeAgain) {
  for (const long call : {SYS_pwrite64, SYS_pread64}) {
    const std::string ended =
        on_supervised_thread(call, testing::first_calls_end_with(EAGAIN, 2), [&] {
          PwriteQueue queue({.depth = 1, .threads = 1});
          use(queue, memory_);
        });
    if (ended == testing::kNoSupervision) GTEST_SKIP() << ended;
    EXPECT_EQ(ended, "no error") << call;
  }
}

}  // namespace
}  // namespace zero::files
