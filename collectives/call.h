// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "collectives/communicator.h"

namespace zero {

/// One rank's arguments of a collective: the properties that must agree with its peers', and the
/// memory that peers may read until the call ends.
struct Call {
  std::string name;                          ///< "all_gather(h.8)"
  std::string details;                       ///< other properties that must agree: "fp32, sum"
  std::int64_t step = CallContext::kNoStep;  ///< of this rank; need not agree
  std::vector<std::int64_t> counts;          ///< elements, per slice where there are slices
  bool pairwise = false;  ///< all_to_all: counts[p] here must be receive_counts[me] at rank p
  std::vector<std::int64_t> receive_counts;

  View values;    ///< all_gather: mine; all_reduce, broadcast: values
  Slices slices;  ///< all_gather, reduce_scatter: full; all_to_all: send
  /// If the streams enqueue: events of this rank's stream, recorded on arrival and at each barrier
  /// of the call.
  using Events = std::array<Event, 3>;
  std::shared_ptr<Events> events{};
  int color = 0;  ///< split
  int key = 0;
};

/// The message for an all_gather in which some ranks gather to shared memory and others elsewhere.
inline constexpr std::string_view kTargetsApart =
    "the ranks gather to different places of common memory, or some of them to their own; give the "
    "same part of it on every rank";

/// The contradiction between `mine` of rank `me` and `theirs` of rank `them`, as a message for
/// `me`, which calls the ranks by `names` (empty: 0, 1, ...); empty if they agree. Symmetric: both
/// ranks get a message, or neither.
std::optional<std::string> mismatch(const Call& mine, int me, const Call& theirs, int them,
                                    std::span<const int> names = {});

/// The ranks whose calls are not that of the most, of the calls of all ranks of a group.
struct OddCalls {
  std::string text{};  ///< "rank 3 calls reduce_scatter(h.7), the other 7 ranks all_gather(h.0)"
  std::vector<int> ranks{};  ///< ascending
};

/// Nothing if the calls agree, or no call is that of the most. `names` as above.
std::optional<OddCalls> odd_calls(std::span<const Call> calls, std::span<const int> names = {});

/// Thrown on all ranks of a group whose calls differ, if most of them made the same call.
class CallsDiffer : public Error {
 public:
  /// `rank` throws it; `who_calls_what`: OddCalls::text; `odd`: the ranks that made another call
  /// than most.
  CallsDiffer(int rank, std::string who_calls_what, std::vector<int> odd)
      : Error(fmt::format("[rank {}] {}", rank, who_calls_what)),
        who_calls_what_(std::move(who_calls_what)),
        odd_(std::move(odd)) {}

  const std::string& who_calls_what() const { return who_calls_what_; }
  const std::vector<int>& odd() const { return odd_; }

 private:
  std::string who_calls_what_;
  std::vector<int> odd_;
};

}  // namespace zero
