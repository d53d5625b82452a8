// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "files/disk_calls.h"
#include "tests/device/supervised_thread.h"

namespace zero::testing {

inline bool a_call_to_the_disk_goes_on() {
  const files::DiskCalls calls = files::disk_calls();
  return calls.begun > calls.ended;
}

/// The numbers of those of these system calls that `body` makes, each time, while a call to the
/// disk goes on. All of them where the system lets no thread see another's calls.
inline std::set<long> counted_calls(const std::vector<long>& numbers,
                                    const std::function<void()>& body) {
  std::set<long> seen;
  std::set<long> missed;
  const auto look = [&](const SystemCall& call) {
    (a_call_to_the_disk_goes_on() ? seen : missed).insert(call.number);
    return kCallerCalls;
  };
  const std::string ended = on_supervised_thread(numbers, look, body);
  if (ended == kNoSupervision) return {numbers.begin(), numbers.end()};
  EXPECT_EQ(ended, "no error");
  for (const long each : missed) seen.erase(each);
  return seen;
}

}  // namespace zero::testing
