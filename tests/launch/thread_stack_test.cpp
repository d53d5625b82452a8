// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/thread_stack.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

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

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using namespace std::chrono_literals;

/// A thread that sleeps, behind `first`, until this object ends.
class SleepingThread {
 public:
  explicit SleepingThread(const std::function<void()>& first = [] {})
      : thread_([this, first] {
          first();
          number_ = ::gettid();
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
  std::thread([&] { number = ::gettid(); }).join();
  EXPECT_FALSE(stack_of(number, 10ms));
  EXPECT_FALSE(stack_of(::gettid(), 10ms));
}

TEST(NamedThreads, AThreadWithTwoNamesHasOneStack) {
  ASSERT_TRUE(prepare_stacks());
  const SleepingThread thread;
  NamedThreads threads;
  threads.add("host thread", thread.number());
  threads.add("compute stream", thread.number());
  const std::string text = threads.stacks();
  EXPECT_THAT(text, StartsWith("host thread and compute stream:\n"));
  EXPECT_THAT(text.substr(text.find('\n')), Not(HasSubstr(":\n")));
}

}  // namespace
}  // namespace zero
