// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace zero::plain {

/// The states of an engine as a test keeps them: every parameter and moment, whole. Ranks are
/// threads that share one.
class Snapshot {
 public:
  /// Adds what this rank's shard holds first in its replica, if that is the first one: copied on
  /// `stream` in pieces of odd length.
  void add(Engine& engine, Stream& stream);
  /// Sets all states of an engine, in pieces of `length` elements, and the number of steps.
  /// Collective.
  void restore(Engine& engine, std::int64_t length) const;

  using Key = std::pair<StateKind, std::string>;
  const std::map<Key, std::vector<float>>& values() const { return values_; }
  /// How often each element was added.
  const std::map<Key, std::vector<int>>& times() const { return times_; }

 private:
  std::mutex mutex_;
  std::map<Key, std::vector<float>> values_;
  std::map<Key, std::vector<int>> times_;
  std::int64_t steps_ = 0;
};

/// The kinds of states that outlive a step.
inline constexpr std::array kKeptKinds = {StateKind::parameter, StateKind::moment0,
                                          StateKind::moment1};

std::int64_t elements_of(const LogicalTensor& tensor);

}  // namespace zero::plain
