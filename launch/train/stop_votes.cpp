// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/stop_votes.h"

#include <csignal>

namespace zero {
namespace {

/// In which a launcher has passed a signal on to all ranks.
constexpr std::chrono::seconds kOneRequest{5};

// The fields of a vote, by their first bit: how many ranks ask, and what the first rank's clock
// asks.
constexpr int kRanks = 20;  // bits of a count
constexpr int kSave = 0;
constexpr int kTerminate = 20;
constexpr int kInterrupt = 40;
constexpr int kSaveIsDue = 60;
constexpr int kTimeIsUp = 61;

constexpr std::int64_t one(int field) { return std::int64_t{1} << field; }

std::int64_t field(std::int64_t sum, int from, int bits) {
  return sum >> from & ((std::int64_t{1} << bits) - 1);
}

/// Whether `seconds` (0: never) have passed since `since`.
bool over(Signals::Time since, Signals::Time now, double seconds) {
  return seconds > 0 && std::chrono::duration<double>(now - since).count() >= seconds;
}

}  // namespace

StopVotes::StopVotes(const Options& options) : options_(options), saved_(options.started) {}

std::int64_t StopVotes::vote(Time now) {
  std::int64_t vote = 0;
  voted_ = false;
  if (options_.signals != nullptr) {
    const Signals::Asked asked = options_.signals->asked();
    voted_ = asked.saves > answered_ &&
             !(decided_by_others_ && asked.last_save - *decided_by_others_ < kOneRequest);
    answered_ = asked.saves;
    if (voted_) vote += one(kSave);
    if (asked.ending == SIGTERM) vote += one(kTerminate);
    if (asked.ending == SIGINT) vote += one(kInterrupt);
  }
  if (!options_.first_rank) return vote;
  if (over(saved_, now, options_.save_seconds)) vote += one(kSaveIsDue);
  if (ends_ || over(options_.started, now, options_.stop_seconds)) vote += one(kTimeIsUp);
  return vote;
}

Decision StopVotes::decide(std::int64_t sum, Time now) {
  const bool save_asked = field(sum, kSave, kRanks) > 0;
  if (save_asked && !voted_) decided_by_others_ = now;
  Decision decision;
  decision.time_is_up = field(sum, kTimeIsUp, 1) > 0;
  decision.signal = field(sum, kInterrupt, kRanks) > 0   ? SIGINT
                    : field(sum, kTerminate, kRanks) > 0 ? SIGTERM
                                                         : 0;
  decision.save = save_asked || field(sum, kSaveIsDue, 1) > 0 || decision.ends();
  return decision;
}

}  // namespace zero
