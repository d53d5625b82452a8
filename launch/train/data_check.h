// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace zero {

class Batches;
class Communicator;
class Console;
class Device;
class Signals;
class TokenFile;

/// The digests of token files: a thread of its own, of the lowest priority, reads and hashes every
/// byte of those that have none beside them. One thread may use an object.
class DataDigests {
 public:
  /// The files must outlive the object. Leaves out those that `read_elsewhere` marks, one mark a
  /// file, or none: their texts stay empty unless their digest is beside them.
  explicit DataDigests(std::vector<const TokenFile*> files, std::vector<bool> read_elsewhere = {});
  DataDigests(const DataDigests&) = delete;
  DataDigests& operator=(const DataDigests&) = delete;
  ~DataDigests();

  /// Whether the digests of all files are known, or one cannot be made. Does not wait.
  bool complete() const { return complete_; }
  /// Waits until complete(), at most `seconds`.
  void wait(double seconds) const;
  /// The digests' texts once complete(); throws what the thread has met, as a file that was cut.
  std::vector<std::string> texts() const;
  /// The same at any time, empty for files whose digest is not beside them.
  std::vector<std::string> known() const;
  /// Bytes of the files that are read here.
  std::int64_t bytes_to_read() const;

 private:
  bool is_read(std::size_t file) const;
  void read_all();

  std::vector<const TokenFile*> files_;
  std::vector<bool> read_elsewhere_;
  std::vector<std::string> texts_;  // the thread's until complete_
  std::exception_ptr failure_;      // likewise
  std::atomic<bool> complete_{false};
  std::atomic<bool> stopped_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable completed_;
  std::thread thread_;
};

/// Compares all bytes of a run's data with those on the other ranks, and with those that the run
/// had when its checkpoint was written. Digests beside the files are compared at the start. Files
/// without one are hashed in the background, each file of a host by the lowest rank that has opened
/// it, and compared once every rank is ready, at the latest before the last step's states are
/// saved: the run ends if they differ.
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
