// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// How zero_generate answers signals.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "launch/generate/answer_session.h"
#include "launch/process/exit_status.h"

namespace zero::testing {
namespace {

using ::testing::ExitedWithCode;

/// Whether a signal has arrived that the watcher has not taken yet.
bool is_pending(int signal) {
  sigset_t pending;
  ::sigpending(&pending);
  return ::sigismember(&pending, signal) == 1;
}

/// Gives this process so many orders to end, each once the process has answered the one before;
/// ends it with 0 if it goes on behind the last.
[[noreturn]] void order_to_end(Interrupts& interrupts, int times) {
  for (int order = 0; order < times; ++order) {
    // Not the same one, sent by a launcher too.
    if (order > 0) std::this_thread::sleep_for(std::chrono::milliseconds(250));
    ::kill(::getpid(), SIGTERM);
    while (is_pending(SIGTERM)) std::this_thread::yield();  // of two the lower number is taken
    ::kill(::getpid(), SIGUSR1);
    while (!interrupts.take_report()) std::this_thread::yield();
  }
  ::_exit(exit_status::kOk);
}

TEST(Interrupts, TheFirstWaitsForThePassUnderWayIfAnswersAreComing) {
  const auto end = [](bool answering, int times) {
    Interrupts interrupts;  // blocks the signals in this thread
    interrupts.answering(answering);
    order_to_end(interrupts, times);
  };
  EXPECT_EXIT(end(true, 1), ExitedWithCode(exit_status::kOk), "");
  EXPECT_EXIT(end(false, 1), ExitedWithCode(exit_status::after_signal(SIGTERM)), "");
  EXPECT_EXIT(end(true, 2), ExitedWithCode(exit_status::after_signal(SIGTERM)), "");
}

}  // namespace
}  // namespace zero::testing
