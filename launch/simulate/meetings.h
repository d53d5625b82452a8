// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

namespace zero {

/// Where ranks that are simulated side by side, each on a thread, wait for each other: a collective
/// begins when the last of them comes.
class Meetings {
 public:
  /// `simulated`: the ranks, ascending.
  explicit Meetings(std::vector<int> simulated) : simulated_(std::move(simulated)) {}

  /// Blocks until all simulated ranks of the group `ranks` have come to its next collective;
  /// returns the latest `time` of them. Throws zero::Error if another rank has failed.
  double latest(const std::vector<int>& ranks, double time);
  /// Releases all ranks, which then throw: one has failed.
  void fail();

 private:
  struct Meeting {
    std::size_t come = 0;
    long rounds = 0;   // ended so far
    double time = 0;   // the latest of this round
    double ended = 0;  // the latest of the round before
  };

  std::vector<int> simulated_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::vector<int>, Meeting> meetings_;  // by a group's simulated ranks
  bool failed_ = false;
};

}  // namespace zero
