// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launch/rendezvous/store/greeting.h"
#include "launch/rendezvous/store/wire.h"

namespace zero {

/// The keys and values of a job and which of its ranks are there, without sockets. One thread
/// alone calls it, but for wait_for_goodbyes.
class StoreShelf {
 public:
  using Message = store_wire::Message;

  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30U;

  /// One connection whose end knows the job's secret.
  struct Guest {
    store_wire::Caller caller;
    bool is_rank = false;  ///< whether this is its rank's first connection, whose end is the rank's
  };
  /// A request that is answered once its keys are set, or no longer than `patience` later.
  struct Wait {
    std::chrono::milliseconds patience{};
    Message keys;
    bool wants_value = false;
  };
  enum class Time { left, over };

  /// `job`: the name that all ranks must give. `most_bytes`: of all keys and values together.
  explicit StoreShelf(int world, std::string job = "", std::uint64_t most_bytes = kMostBytes);

  /// Does what a guest asks: its answer, or what it waits for. Throws zero::Error if it is no
  /// request.
  std::variant<Message, Wait> obey(const Message& request, Guest& guest);
  /// The answer to a wait, if it has one.
  std::optional<Message> answer(const Wait& wait, Time time) const;
  /// The guest's connection has ended.
  void gone(Guest& guest);

  /// Returns once every rank that came has said goodbye or is lost, or `patience` has passed.
  /// Thread-safe.
  void wait_for_goodbyes(std::chrono::milliseconds patience);

 private:
  /// One rank's state, as its first connection shows it.
  enum class Presence { absent, there, left, lost };

  Message hello(Guest& guest);
  Message set(const std::string& key, const std::string& value);
  void mark(int rank, Presence presence);
  std::string absent_ranks() const;

  int world_;
  std::string job_;
  std::uint64_t most_bytes_;
  std::uint64_t bytes_ = 0;
  std::map<std::string, std::string, std::less<>> values_;
  std::optional<std::string> lost_;

  mutable std::mutex mutex_;  // of ranks_
  std::condition_variable changed_;
  std::vector<Presence> ranks_;
};

}  // namespace zero
