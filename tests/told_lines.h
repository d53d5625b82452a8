// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace zero::testing {

/// Lines that were told, as they came. Any thread.
class ToldLines {
 public:
  void add(const std::string& line) {
    const std::scoped_lock lock(mutex_);
    lines_.push_back(line);
    came_.notify_all();
  }
  std::function<void(const std::string&)> adder() {
    return [this](const std::string& line) { add(line); };
  }
  /// Returns once as many have come.
  void wait_for(std::size_t lines) {
    std::unique_lock lock(mutex_);
    came_.wait(lock, [&] { return lines_.size() >= lines; });
  }
  std::vector<std::string> all() {
    const std::scoped_lock lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::string> lines_;
};

}  // namespace zero::testing
