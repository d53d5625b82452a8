// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/long_wait.h"
#include "collectives/store.h"

namespace zero::nccl {

/// Finds ranks that do not come to a group's last call. The host cannot observe the work of a call
/// on the GPUs, so every rank counts its calls, and a rank that has made none for a while publishes
/// its count in the store. A rank with a lower count there, or none, has not come. Used by one
/// thread, a rank's watch.
class Attendance {
 public:
  /// A rank's progress through the calls of a group.
  struct GroupProgress {
    std::string name{};  ///< equal on the group's ranks
    int rank = 0;
    std::vector<std::string> hosts{};  ///< of its ranks
    std::int64_t calls = 0;            ///< calls so far that all ranks of the group make
    std::string who{};                 ///< the last call: "[rank 3] all_gather(h.0)"
    std::int64_t step = CallContext::kNoStep;
  };

  /// `store` must outlive this.
  Attendance(Store& store, std::shared_ptr<const CallContext> context)
      : store_(store), context_(std::move(context)) {}

  /// Must be called repeatedly with all groups of the rank. Warns of ranks that do not come, and
  /// throws zero::Error at the timeout.
  void look(const std::vector<GroupProgress>& groups);
  /// Time until look() has something new; at most `most`.
  std::chrono::milliseconds until_due(std::chrono::milliseconds most) const;

 private:
  /// A group and the wait that follows its last call.
  struct Quiet {
    std::int64_t calls = 0;
    int looks = 0;
    std::optional<LongWait> wait{};  // set from the third look on
  };

  void look(const GroupProgress& group, Quiet& quiet);
  std::int64_t calls_of(const GroupProgress& group, std::size_t rank) const;
  std::vector<AbsentRank> absent(const GroupProgress& group) const;

  Store& store_;
  std::shared_ptr<const CallContext> context_;
  std::map<std::string, Quiet> quiet_;
};

}  // namespace zero::nccl
