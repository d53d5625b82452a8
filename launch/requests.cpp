// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/requests.h"

#include <fmt/format.h>

#include <csignal>

namespace zero {
namespace {

/// A launcher, or timeout(1), may send one process the same signal twice at once.
constexpr std::chrono::milliseconds kOneSignal{200};
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

constexpr const char* kSaving = "SIGUSR1: saving a checkpoint after this step";
constexpr const char* kRefused = "SIGUSR1: no run.checkpoint.folder; nothing is saved";

const char* name_of(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

}  // namespace

Signals::Answer Signals::arrived(int signal, Time now) {
  const std::scoped_lock lock(mutex_);
  if (signal == SIGUSR1) {
    if (state_ == State::refusing) return {.line = kRefused};
    if (state_ == State::ended) return {.line = "SIGUSR1: the last step is done; nothing is saved"};
    ++asked_.saves;
    asked_.last_save = now;
    return {.line = state_ == State::listening ? kSaving : ""};
  }
  if (state_ != State::listening) return {.ends_process = true};
  if (asked_.ending == 0) {
    asked_.ending = signal;
    ending_since_ = now;
    return {.line = fmt::format(
                "{}: saving a checkpoint after this step, then ending; once more ends at once",
                name_of(signal))};
  }
  return {.ends_process = now - ending_since_ >= kOneSignal};
}

std::string Signals::listen() {
  const std::scoped_lock lock(mutex_);
  state_ = State::listening;
  return asked_.saves > 0 ? kSaving : "";
}

std::string Signals::refuse() {
  const std::scoped_lock lock(mutex_);
  state_ = State::refusing;
  return asked_.saves > 0 ? kRefused : "";
}

Signals::Asked Signals::asked() const {
  const std::scoped_lock lock(mutex_);
  return asked_;
}

int Signals::stop_listening() {
  const std::scoped_lock lock(mutex_);
  state_ = State::ended;
  return asked_.ending;
}

Requests::Requests(const Options& options) : options_(options), saved_(options.started) {}

std::int64_t Requests::vote(Time now) {
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
  if (over(options_.started, now, options_.stop_seconds)) vote += one(kTimeIsUp);
  return vote;
}

Decision Requests::decide(std::int64_t sum, Time now) {
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
