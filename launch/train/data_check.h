// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "device/device.h"
#include "launch/data/batches.h"
#include "launch/data/data_digests.h"
#include "launch/process/signals.h"
#include "launch/telemetry/console.h"

namespace zero {

/// Holds all bytes of a run's data against those on the other ranks, and against those that the run
/// had when its checkpoint was written. Digests beside the files are compared at the start. Files
/// without one are hashed in the background, each file of a host by the lowest rank that has opened
/// it, and compared once every rank is ready: the run then ends if they differ, before the last
/// step's states are saved at the latest.
class DataCheck {
 public:
  /// Collective. All must outlive the object.
  DataCheck(const Batches& batches, Communicator& ranks, Device& device, Console& console,
            const Signals* signals = nullptr);

  /// The digests of the training files that a checkpoint names ("" for one that it does not know;
  /// none: it knows of none). Collective; throws AgreedError if a known one differs.
  void expect(std::vector<std::string> digests);
  /// This rank's addend to StepOptions::vote beside that of StopVotes.
  std::int64_t vote();
  /// What is due after a step with these votes. Collective; throws AgreedError naming rank and file
  /// if bytes differ. After the last step of the run it waits for digests that are not yet known,
  /// unless a signal asks a rank for an end.
  enum class Step : std::uint8_t { middle, last };
  void after_step(std::int64_t votes, Step step);
  /// Bytes of the files that this rank hashes.
  std::int64_t bytes_to_read() const { return digests_.bytes_to_read(); }
  /// The digests of the training files that are known to be the same on all ranks; "" for others.
  std::vector<std::string> agreed() const;

 private:
  /// What holds of all ranks, and what of one.
  struct Ranks {
    bool complete = false;  ///< all have all digests
    bool ending = false;    ///< a signal asks one for an end
  };
  Ranks ask_ranks();
  void compare();
  /// The digests of all files, those that other ranks have read included. Collective.
  std::vector<std::string> all_digests();
  void check_against_expected(const std::vector<std::string>& digests) const;

  const Batches& batches_;
  Communicator& ranks_;
  Device& device_;
  Console& console_;
  const Signals* signals_;
  std::vector<int> readers_;  // of each file
  DataDigests digests_;
  std::vector<std::string> known_;  // of each file; empty: not yet
  std::vector<std::string> expected_;
  bool compared_;                                  // all digests
  std::chrono::steady_clock::time_point asked_{};  // when this rank's vote last asked to compare
};

}  // namespace zero
