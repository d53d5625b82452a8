// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>

#include "collectives/store.h"

namespace zero {

/// A Store of ranks that are threads of one process.
class InProcessStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override;

  std::optional<std::string> lost() override;

  /// Declares that no rank will set further keys: waits for a missing key throw `reason`.
  void close(std::string_view reason);

 private:
  std::vector<std::string> missing(const std::vector<std::string>& keys) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
  std::optional<std::string> closed_;
};

}  // namespace zero
