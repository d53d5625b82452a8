// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

class Communicator;
class Device;

/// Small keys and values that all ranks of a group see: bootstrap, agreement checks, post-mortems.
/// Thread-safe.
class Store {
 public:
  virtual ~Store() = default;
  /// Publishes `value` under `key`; a later set of the same key replaces it.
  virtual void set(std::string_view key, std::string_view value) = 0;
  /// The value, once some rank has set it. Throws zero::Error naming the key when `timeout` passes
  /// first.
  virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;
  /// Returns once every key is set; throws zero::Error naming the missing keys when `timeout`
  /// passes first.
  virtual void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) = 0;
};

/// Gives every rank the strings of all ranks, in rank order. Collective, blocks the host; any
/// lengths. Runs on the communication stream of `device`.
std::vector<std::string> exchange(Communicator& communicator, Device& device, std::string_view mine,
                                  std::string_view purpose);

}  // namespace zero
