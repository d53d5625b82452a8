// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "collectives/communicator.h"

namespace zero::testing {

/// Keeps a record of every collective of a communicator and of those split from it.
class Recorder final : public CollectiveListener {
 public:
  explicit Recorder(const Communicator& communicator) : listening_(communicator, *this) {}

  bool listens() const noexcept override { return on_; }
  void collective(const CollectiveRecord& record, Mark /*begin*/, Mark /*end*/) noexcept override {
    records_.push_back(record);
  }

  void pause() { on_ = false; }
  const std::vector<CollectiveRecord>& records() const { return records_; }
  void clear() { records_.clear(); }

 private:
  bool on_ = true;
  std::vector<CollectiveRecord> records_;
  Listening listening_;
};

}  // namespace zero::testing
