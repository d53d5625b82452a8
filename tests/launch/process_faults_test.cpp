// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/process_faults.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>

#include "launch/telemetry/output.h"

namespace zero::testing {
namespace {

// A launcher drops what it has not read of the first when the last process ends.
TEST(ProcessFaults, OtherProcessesLeaveTheFirstOneTimeToTellOfASignal) {
  bool tells = false;
  const auto tell = [&] { tells = true; };
  ProcessFaults("zero_train", 0).end_by(SIGTERM, tell);
  EXPECT_TRUE(tells);
  tells = false;
  const auto begin = std::chrono::steady_clock::now();
  ProcessFaults("zero_train", 1).end_by(SIGTERM, tell);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kForReader);
  EXPECT_FALSE(tells);
}

}  // namespace
}  // namespace zero::testing
