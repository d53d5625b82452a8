// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/inquiries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "collectives/long_wait.h"
#include "collectives/mpi/check.h"

namespace zero::mpi {
namespace {

using Clock = std::chrono::steady_clock;

// A question is "NUMBER", its answer "NUMBER" and the ranks for which the one that answers waits.
constexpr int kQuestion = 0;
constexpr int kAnswer = 1;

}  // namespace

void Inquiries::ask() {
  constexpr std::chrono::milliseconds kTogether{100};
  const std::scoped_lock lock(mutex_);
  if (number_ > 0 && Clock::now() - asked_ < kTogether) return;
  asked_ = Clock::now();
  ++number_;
  answers_.clear();
  job_.abandon();  // ranks that do not come leave questions behind
  tell_peers(job_.get(), kQuestion, std::to_string(number_));
}

void Inquiries::attend(const Absent& absent) {
  constexpr std::chrono::milliseconds kBetween{5};  // a look costs two probes of messages
  const std::scoped_lock lock(mutex_);
  const auto now = Clock::now();
  if (now - looked_ < kBetween) return;
  looked_ = now;
  int rank = 0;
  while (const auto question = take_message(job_.get(), MPI_ANY_SOURCE, kQuestion, &rank)) {
    job_.abandon();
    send_and_forget(job_.get(), rank, kAnswer,
                    fmt::format("{} {}", *question, fmt::join(absent(), " ")));
  }
  while (const auto answer = take_message(job_.get(), MPI_ANY_SOURCE, kAnswer, &rank)) {
    std::istringstream words(*answer);
    int number = 0;
    words >> number;
    if (number != number_) continue;  // of an inquiry before
    std::vector<int>& ranks = answers_[rank];
    for (int each = 0; words >> each;) ranks.push_back(each);
  }
}

std::optional<std::vector<int>> Inquiries::to_blame(const std::vector<int>& absent) {
  const std::scoped_lock lock(mutex_);
  std::vector<int> ranks = ranks_to_blame(absent, answers_, job_.rank());
  const auto here = [this](int rank) { return processes_.on_this_host(rank); };
  if (!std::ranges::all_of(ranks, here) && !hears_other_hosts()) return std::nullopt;
  return ranks;
}

bool Inquiries::cut_off() {
  const std::scoped_lock lock(mutex_);
  return processes_.hosts() > 1 && !hears_other_hosts();
}

bool Inquiries::hears_other_hosts() const {
  return std::ranges::any_of(
      answers_, [this](const auto& answer) { return !processes_.on_this_host(answer.first); });
}

}  // namespace zero::mpi
