// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "launch/telemetry/machine_limits.h"

namespace zero {

class Engine;

/// The time of one kind of work in a profile.
struct ProfileEntry {
  std::string name{};
  std::int64_t calls = 0;
  double seconds = 0;
  double flop = 0;
  double bytes = 0;

  /// The least seconds that the limits allow: the slower of arithmetic and memory; 0 if neither is
  /// known.
  double least_seconds(const MachineLimits& limits) const;
  /// least_seconds over seconds: 1 is at the limit. Operands still in caches, or limits measured on
  /// a busy machine, give more.
  double share(const MachineLimits& limits) const;
};

/// A table of time by kind of work: the roofline view of a rank's steps. Not thread-safe.
class Profile {
 public:
  /// Adds one call.
  void add(std::string_view name, double seconds, double flop, double bytes);
  /// Adds the time of calls that add() counted without it.
  void add_seconds(std::string_view name, double seconds);
  /// Adds the bytes of work whose time was added without them.
  void add_bytes(std::string_view name, double bytes);
  void add_step(double seconds);

  std::int64_t steps() const { return steps_; }
  /// Entries by time, the longest first.
  std::vector<ProfileEntry> entries() const;

  /// A table for people: per step, with each entry's share of the step and of its limit.
  std::string table(const MachineLimits& limits) const;
  nlohmann::ordered_json json(const MachineLimits& limits) const;

 private:
  ProfileEntry& entry(std::string_view name);

  std::map<std::string, ProfileEntry, std::less<>> entries_;
  std::int64_t steps_ = 0;
  double step_seconds_ = 0;  // of all steps
};

/// Adds to a profile the bytes that the optimizer's updates move: master values, moments, gradient
/// and compute copy of every owned element, once a step.
void add_update_bytes(Profile& profile, Engine& engine);

/// A table of the collectives, per step; they run concurrently with compute. May be empty.
std::string collectives_table(const Profile& collectives, std::int64_t steps);
nlohmann::ordered_json collectives_json(const Profile& collectives);

}  // namespace zero
