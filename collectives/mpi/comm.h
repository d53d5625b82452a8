// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <source_location>
#include <string>
#include <thread>
#include <vector>

namespace zero::mpi {

/// Throws zero::Error with MPI's message and the call site unless `code` is MPI_SUCCESS.
void check_mpi(int code, std::source_location where = std::source_location::current());

/// The bytes of a message from `source`, a rank of `group` or MPI_ANY_SOURCE, if one has arrived;
/// `from`: the rank that sent it.
std::optional<std::string> take_message(MPI_Comm group, int source, int tag, int* from = nullptr);

/// Sends `text` without waiting: for a job that is about to end. MPI may read it for long, of a
/// rank that does not come, so its memory is never freed.
void send_and_forget(MPI_Comm group, int to, int tag, const std::string& text);
/// The same to all other ranks of `group`.
void tell_peers(MPI_Comm group, int tag, const std::string& text);

/// Of each rank of `part`, in order, its rank in `whole`, of which all ranks of `part` are. Not
/// collective.
std::vector<int> ranks_in(MPI_Comm whole, MPI_Comm part);

/// Throws zero::Error unless the thread level that MPI provides is MPI_THREAD_MULTIPLE.
void check_thread_level(int provided);

/// Whether MPI has been finalised.
bool finalised();

/// Owns one MPI communicator, whose calls return error codes.
class Comm {
 public:
  /// Takes ownership of `handle`.
  explicit Comm(MPI_Comm handle);
  /// A private copy of `handle`. Collective.
  static Comm copy_of(MPI_Comm handle);
  Comm(Comm&& other) noexcept;
  Comm& operator=(Comm&&) = delete;
  ~Comm();

  /// Never frees the communicator: messages on it that no rank will receive must not reach a later
  /// communicator that reuses its identifier.
  void abandon() { abandoned_ = true; }

  MPI_Comm get() const { return handle_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
  bool abandoned_ = false;
  int rank_ = 0;
  int size_ = 1;
};

/// Pauses between tests for completion. MPI has no blocking wait that sleeps, and ranks outnumber
/// cores: a waiting rank must leave its core to those that compute. A few yields catch messages
/// that are nearly done, then sleeps grow; late in a long wait each is a thirty-second of the wait,
/// so that a slow link costs few wake-ups and completion is seen at most 3 % late.
class Backoff {
 public:
  void pause() {
    if (yields_ < kYields) {
      ++yields_;
      sched_yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    const auto waited = std::chrono::duration_cast<Micros>(Clock::now() - start_);
    sleep_ = std::min(sleep_ + sleep_ / 4, std::clamp(waited / 32, kLong, kLongest));
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Micros = std::chrono::microseconds;
  static constexpr int kYields = 4;
  static constexpr Micros kLong{200};
  static constexpr Micros kLongest{1000};

  Clock::time_point start_ = Clock::now();
  int yields_ = 0;
  Micros sleep_{20};
};

/// Calls `look` between tests until done(). Returns also if `look` throws when done() has come
/// true: the messages that arrived may say more than that failure.
template <typename Done, typename Look>
void wait_until(const Done& done, const Look& look) {
  Backoff backoff;
  while (!done()) {
    try {
      look();
    } catch (const std::exception&) {
      if (!done()) throw;
      return;
    }
    backoff.pause();
  }
}

}  // namespace zero::mpi
