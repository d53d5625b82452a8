// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "launch/plan/candidate.h"
#include "launch/plan/closed_forms.h"

namespace zero {

/// What a candidate costs, in the order of comparison. With the machine's rates that is estimated
/// time; without them FLOP, then 16 bits before fp32, then bytes that pass to files and back, then
/// between GPUs and their hosts, then bytes that leave a host, then within hosts. All of one token
/// of a step, so that batches of any size compare.
struct Cost {
  double seconds = 0;  ///< of all ranks together; 0: rates are not known
  double flop = 0;     ///< with what is repeated
  bool fp32 = false;   ///< products in fp32: no 16-bit product is slower
  double filed = 0;    ///< bytes that files are read and written
  double copied = 0;   ///< bytes that pass between GPUs and their hosts
  double between_hosts = 0;
  double within_hosts = 0;
  friend std::partial_ordering operator<=>(const Cost&, const Cost&) = default;
};

/// The bytes by which ranks are above what there is.
struct Shortage {
  std::int64_t of_device = 0;  ///< a rank
  std::int64_t of_host = 0;    ///< all ranks of a host, if Machine::host_memory is known

  static Shortage of(const MemoryUse& fullest, const Machine& machine);
  bool none() const { return of_device == 0 && of_host == 0; }
  std::int64_t sum() const { return of_device + of_host; }
};
/// Of the host's memory, by all ranks of a host of GPUs, each taken to be as full as the fullest.
std::int64_t host_bytes(const MemoryUse& fullest, const Machine& machine);

/// A candidate with its closed forms.
struct Ranked {
  Candidate candidate{};
  MemoryUse memory{};
  std::int64_t bytes = 0;  ///< that the machine's memory bounds
  Shortage shortage{};
  StepWork work{};
  Cost cost{};
  double tokens = 0;        ///< of a step
  double step_seconds = 0;  ///< estimated; 0: rates are not known
};

/// All candidates of a question.
struct Ranking {
  std::vector<Ranked> fitting;  ///< least cost first; of equal ones, that of the earlier values
  std::vector<Ranked> missing;  ///< least shortage first
  std::size_t count() const { return fitting.size() + missing.size(); }
};

/// Estimated seconds of a step: the larger of arithmetic and what shards and replicas send, which
/// overlap, and then what tensor ranks send, which does not. 0 unless the machine has all rates.
double step_seconds(const StepWork& work, const Candidate& candidate, const Machine& machine);

Ranked ranked(const TrainingQuestion& question, const Candidate& candidate, ClosedForms& forms);
/// Throws zero::Error as candidates() does.
Ranking rank_candidates(const TrainingQuestion& question, ClosedForms& forms);

/// Why rows stand in their order, and what that assumes, in one sentence.
std::string order_text(const Machine& machine);

/// The same without savings: stage 0, nothing recomputed, fp32 moments, the same mesh of tensor
/// ranks.
Candidate plain_of(const Candidate& candidate);

}  // namespace zero
