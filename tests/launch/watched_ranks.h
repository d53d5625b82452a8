// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/consecutive.h"
#include "collectives/operation.h"
#include "launch/flight/flight_file.h"
#include "launch/flight/flight_reader.h"
#include "launch/watch/watchdog.h"
#include "tests/launch/flight_states.h"
#include "tests/launch/rank_threads.h"

namespace zero::testing {

/// What the watchdogs of a job tell and do.
struct ToldByWatchdogs {
  std::mutex mutex{};
  std::vector<std::string> texts{};  // first lines
  std::atomic<int> ends{0};
  bool may_warn = false;  // of links that are lost, by the test or on a slow machine

  /// `host`: the key of the rank's host; empty: this machine's own.
  WatchdogOptions options(const std::string& host = "") {
    return {.hang_seconds = 0.4,
            .host_key = host,
            .addresses = kLoopback,
            .tell =
                [this](const std::vector<std::string>& lines) {
                  const std::scoped_lock lock(mutex);
                  texts.push_back(lines.at(0));
                },
            .end = [this] { ++ends; },
            .warn =
                [this](const std::string& text) {
                  if (!may_warn) ADD_FAILURE() << text;
                }};
  }
};

/// The group of all ranks of the job, new in this file.
inline std::uint32_t add_world(FlightFile& file, int ranks) {
  return file.add_group("world", consecutive(0, ranks));
}

/// barrier(h.7) of a group, which has started.
inline FlightFile::Ticket enter_barrier(FlightFile& file, std::uint32_t group) {
  const auto ticket = file.submit(
      {.operation = static_cast<std::uint8_t>(Operation::barrier), .group = group, .name = "h.7"});
  file.started(ticket, FlightFile::now());
  return ticket;
}

/// A rank in the third step of a run whose steps have taken a tenth of a second, with its watchdog,
/// which does not watch yet.
struct WatchedRank {
  WatchedRank(Communicator& job, WatchdogOptions options)
      : world(job),
        file(FlightFile::create("", job.rank(), job.size())),
        reader(own_path(file)),
        group(add_world(file, job.size())) {
    file.mean_step(0.1);
    file.phase(3, "backward");
    watchdog = std::make_unique<Watchdog>(world, *cpu::open(), file, std::move(options));
  }

  int number() const { return world.rank(); }
  FlightFile::Ticket enter() { return enter_barrier(file, group); }

  Communicator& world;
  FlightFile file;
  FlightReader reader;
  std::uint32_t group;
  std::unique_ptr<Watchdog> watchdog{};  // last: uses the file
};

}  // namespace zero::testing
