// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/errors.h"
#include "tests/launch/store_stranger.h"
#include "tests/told_lines.h"

namespace zero::testing {

/// A job whose ranks, as threads, set, get and wait all the time, and check what they are given.
class BusyJob {
 public:
  static constexpr int kRanks = 3;
  /// The keys of a round that stay in the store, and the bytes of one at most.
  static constexpr int kKeysOfRound = kRanks + 1;
  static constexpr std::int64_t kBytesOfKey = 512;

  /// Returns once all ranks have met.
  BusyJob(Door door, ToldLines& told, StoreLimits limits)
      : options_({.host = "127.0.0.1",
                  .world = kRanks,
                  .timeout = kLong,
                  .secret = secret_at(door),
                  .report = [&told](const std::string& line) { told.add(line); },
                  .limits = limits}),
        first_(std::make_unique<TcpStore>(options_)),
        ended_(kRanks) {
    options_.port = first_->port();
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks_.emplace_back([this, rank] { live(rank); });
    }
    while (rounds_ < 2 && running_ == kRanks) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ~BusyJob() { end(); }
  BusyJob(const BusyJob&) = delete;
  BusyJob& operator=(const BusyJob&) = delete;

  int port() const { return options_.port; }
  /// Rounds that rank 0 has ended.
  int rounds() const { return rounds_; }
  /// Whether no rank has ended.
  bool is_whole() const { return running_ == kRanks; }
  /// Lets the ranks end their round, and the store end; how each rank ended: "no error" if well.
  std::vector<std::string> end() {
    last_ = true;
    ranks_.clear();
    first_.reset();
    return ended_;
  }

 private:
  static constexpr std::chrono::seconds kLong{120};

  static std::string value(int round, int rank, int part) {
    const auto size = static_cast<std::size_t>((round * 7 + rank * 13 + part) % 200);
    return fmt::format("{} {} {} {}", round, rank, part,
                       std::string(size, static_cast<char>('a' + rank)));
  }

  void live(int rank) {
    ended_[static_cast<std::size_t>(rank)] = error_of([&] {
      std::unique_ptr<TcpStore> own;
      if (rank > 0) {
        StoreOptions options = options_;
        options.rank = rank;
        options.report = nullptr;
        own = std::make_unique<TcpStore>(options);
      }
      TcpStore& store = own ? *own : *first_;
      for (int round = 0; is_another(store, rank, round); ++round) live_round(store, rank, round);
    });
    --running_;
  }

  /// Whether there is a round: all ranks do as rank 0 says.
  bool is_another(TcpStore& store, int rank, int round) {
    const std::string key = fmt::format("busy/{}", round);
    if (rank == 0) {
      // Rounds leave keys, parts of a round do not.
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      store.set(key, last_ ? "end" : "on");
    }
    return store.get(key, kLong) == "on";
  }

  void live_round(TcpStore& store, int rank, int round) {
    constexpr int kParts = 16;
    const auto own = [](int of) { return fmt::format("busy/of/{}", of); };
    for (int part = 0; part < kParts; ++part) {
      const std::string expected = value(round, rank, part);
      store.set(own(rank), expected);
      check(store.get(own(rank), kLong), expected);
    }
    store.set(fmt::format("busy/{}/{}", round, rank), value(round, rank, 0));
    std::vector<std::string> keys;
    for (int of = 0; of < kRanks; ++of) keys.push_back(fmt::format("busy/{}/{}", round, of));
    store.wait(keys, kLong);
    const std::vector<std::string> values = store.get_all(keys, kLong);
    for (int of = 0; of < kRanks; ++of) {
      check(values[static_cast<std::size_t>(of)], value(round, of, 0));
    }
    if (const auto lost = store.lost()) fail("the store holds a rank for lost: {}", *lost);
    if (rank == 0) ++rounds_;
  }

  static void check(const std::string& found, const std::string& expected) {
    ZERO_CHECK(found == expected, "found \"{}\", expected \"{}\"", found, expected);
  }

  StoreOptions options_;
  std::unique_ptr<TcpStore> first_;
  std::atomic<bool> last_{false};
  std::atomic<int> rounds_{0};
  std::atomic<int> running_{kRanks};
  std::vector<std::string> ended_;
  std::vector<std::jthread> ranks_;
};

}  // namespace zero::testing
