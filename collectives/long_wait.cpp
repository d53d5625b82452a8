// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/long_wait.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"

namespace zero {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kOverdue = ", the timeout of collectives";
constexpr std::string_view kForRank = " s for rank ";
constexpr std::string_view kOnHost = "on host ";
constexpr std::size_t kNamed = 8;  // most ranks named in a message

// "rank 2 (process 4711 is stopped), rank 3 (a thread) and rank 5 (process 4714 runs)"
std::string list_of(const std::vector<AbsentRank>& absent) {
  std::string text;
  const std::size_t named = std::min(absent.size(), kNamed);
  const std::size_t more = absent.size() - named;
  for (std::size_t i = 0; i < named; ++i) {
    if (i > 0) text += i + 1 == named && more == 0 ? " and " : ", ";
    text += fmt::format("rank {} ({})", absent[i].rank, absent[i].state);
  }
  if (more > 0) text += fmt::format(" and {} more", more);
  return text;
}

double seconds(milliseconds time) { return static_cast<double>(time.count()) / 1000; }

// ", step 12"; ", load", where the step would be that of the next pass.
std::string place_of(const Waiting& waiting, const WaitLimits& limits) {
  if (!limits.disk_phase.empty()) return ", " + limits.disk_phase;
  return waiting.step == CallContext::kNoStep ? "" : fmt::format(", step {}", waiting.step);
}

std::string line_of(const Waiting& waiting, const WaitLimits& limits, milliseconds time) {
  return fmt::format("{}{}: waiting for {:g} s for {}", waiting.who, place_of(waiting, limits),
                     seconds(time), list_of(waiting.absent));
}

// How a wait within `limits` ends if the ranks never come.
std::string end_of(const WaitLimits& limits) {
  if (limits.timeout.count() > 0) {
    return fmt::format("the job ends after {:g} s (run.collective_timeout)",
                       seconds(limits.timeout));
  }
  if (limits.disk_phase.empty()) return "no timeout (run.collective_timeout is 0)";
  return fmt::format("no timeout: a disk decides how long a {} takes", limits.disk_phase);
}

}  // namespace

std::string AbsentRank::host() const {
  if (!state.starts_with(kOnHost)) return "";
  return state.substr(kOnHost.size(), state.find(':') - kOnHost.size());
}

std::vector<int> ranks_to_blame(const std::vector<int>& absent,
                                const std::map<int, std::vector<int>>& answers, int self) {
  std::set<int> seen{self};
  std::vector<int> blamed;
  std::vector<int> open = absent;
  while (!open.empty()) {
    const int rank = open.back();
    open.pop_back();
    if (!seen.insert(rank).second) continue;
    const auto waits = answers.find(rank);
    if (waits == answers.end()) {
      blamed.push_back(rank);
    } else {
      open.insert(open.end(), waits->second.begin(), waits->second.end());
    }
  }
  std::ranges::sort(blamed);
  return blamed;
}

LongWait::LongWait(const CallContext& context, int behind)
    : limits_(context.limits()),
      timeout_(limits_->timeout),
      warning_(limits_->warning),
      next_warning_(limits_->warning) {
  if (timeout_.count() > 0) timeout_ += behind * std::max(limits_->timeout / 20, kBehind);
}

LongWait::Clock::duration LongWait::passed(Clock::time_point now) const {
  return counted_ + std::min<Clock::duration>(now - looked_, 2 * kBetweenLooks);
}

LongWait::Due LongWait::due() {
  const Clock::time_point now = Clock::now();
  counted_ = passed(now);
  looked_ = now;
  if (timeout_.count() > 0 && counted_ >= timeout_) return Due::timeout;
  if (next_warning_.count() == 0 || counted_ < next_warning_) return Due::nothing;
  warning_ = next_warning_;
  while (next_warning_ <= counted_) next_warning_ *= 2;
  return Due::warning;
}

milliseconds LongWait::until_due(milliseconds most) const {
  const auto now = std::chrono::duration_cast<milliseconds>(passed(Clock::now()));
  most = std::min(most, kBetweenLooks);
  if (timeout_.count() > 0) most = std::min(most, timeout_ - now);
  if (next_warning_.count() > 0) most = std::min(most, next_warning_ - now);
  return std::max(most, milliseconds(1));
}

void LongWait::warn(const Waiting& waiting) const {
  if (!limits_->warn) return;
  limits_->warn(line_of(waiting, *limits_, warning_) + "; " + end_of(*limits_));
}

std::string LongWait::overdue(const Waiting& waiting) const {
  return fmt::format(
      "{}{}; find out what holds each of them up, or raise run.collective_timeout "
      "(WaitLimits::timeout)",
      line_of(waiting, *limits_, limits_->timeout), kOverdue);
}

bool LongWait::is_overdue(std::string_view message) {
  return message.find(kOverdue) != std::string_view::npos;
}

// As list_of() and line_of() write it.
std::optional<AbsentRank> LongWait::first_absent(std::string_view message) {
  const std::size_t at = message.find(kForRank);
  if (at == std::string_view::npos || !is_overdue(message)) return std::nullopt;
  message.remove_prefix(at + kForRank.size());
  AbsentRank first;
  const auto [end, error] =
      std::from_chars(message.data(), message.data() + message.size(), first.rank);
  if (error != std::errc() || first.rank < 0) return std::nullopt;
  message.remove_prefix(static_cast<std::size_t>(end - message.data()));
  if (message.starts_with(" (")) first.state = message.substr(2, message.find(')') - 2);
  return first;
}

void LongWait::look(const std::function<Waiting()>& waiting) {
  const Due now = due();
  if (now == Due::nothing) return;
  const Waiting who = waiting();
  if (who.absent.empty()) return;
  if (now == Due::timeout) throw Error(overdue(who));
  warn(who);
}

}  // namespace zero
