// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "tests/launch/busy_job.h"
#include "tests/launch/drawn.h"
#include "tests/launch/store_stranger.h"

namespace zero::testing {

/// Whether a connection is certain to be dropped and reported by now, as seen from its other end.
enum class Fate { unknown, dropped };

/// Connections that strangers leave open: those that the server drops when their time is over, and
/// those whose answers nobody reads.
struct LeftOpen {
  std::deque<RawClient> silent;
  std::deque<RawClient> unread;

  static void keep(std::deque<RawClient>& all, RawClient one, std::size_t most) {
    all.push_back(std::move(one));
    if (all.size() > most) all.pop_front();
  }
};

/// A stranger before a store: one input of many.
struct Visit {
  Door door;
  int port;
  StoreTls& right;  ///< of the job's secret
  StoreTls& wrong;  ///< of another
  LeftOpen& left_open;
  std::int64_t number;
  Draw draw;

  RawClient comes() const { return knock(door, port); }
  /// A client that has shaken hands and introduced itself.
  Stranger enters() {
    Stranger client(door, port, right);
    EXPECT_TRUE(client.enter(identity()));
    return client;
  }
  store_wire::Identity identity() {
    return {.rank = static_cast<int>(draw.number(0, BusyJob::kRanks - 1)),
            .world = BusyJob::kRanks};
  }
  /// More connections than may have proven nothing.
  void stays(RawClient client) { LeftOpen::keep(left_open.silent, std::move(client), 150); }
  /// Leaves, or does not, with the server waiting for more.
  Fate ends(RawClient client) {
    switch (draw.number(0, 3)) {
      case 0:
        stays(std::move(client));
        return Fate::unknown;
      case 1:
        cut(std::move(client));
        return Fate::unknown;
      case 2:
        return Fate::unknown;
      default:
        client.end();
        return dropped(client);
    }
  }
  static Fate dropped(const RawClient& client) {
    EXPECT_TRUE(client.is_closed());
    return Fate::dropped;
  }
  /// The server says no more, and drops the client.
  static Fate dropped(Stranger& client) {
    EXPECT_TRUE(client.answer().empty());
    return dropped(client.socket());
  }
  std::string bytes(std::int64_t least, std::int64_t most) {
    std::string all(static_cast<std::size_t>(draw.number(least, most)), '\0');
    for (char& byte : all) byte = static_cast<char>(draw.number(0, 255));
    return all;
  }
  std::size_t place(const std::string& text) {
    return static_cast<std::size_t>(draw.number(0, std::ssize(text) - 1));
  }
  /// Changes some bits of a text that is not empty.
  void flip(std::string& text) {
    const std::size_t at = place(text);
    text[at] = static_cast<char>(text[at] ^ static_cast<char>(draw.number(1, 255)));
  }
};

/// A way to behave, by the name that a failure shows.
struct Behavior {
  const char* name;
  Fate (*run)(Visit& visit);
};

/// Of those who know no secret, or another one.
std::vector<Behavior> behaviors_outside();
/// Of those who know the secret.
std::vector<Behavior> behaviors_inside();

}  // namespace zero::testing
