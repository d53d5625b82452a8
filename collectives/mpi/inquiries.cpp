// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/inquiries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "base/host.h"

namespace zero::mpi {
namespace {

using Clock = std::chrono::steady_clock;

// A question is "NUMBER", its answer "NUMBER" and the ranks for which the one that answers waits.
constexpr int kQuestion = 0;
constexpr int kAnswer = 1;

}  // namespace

std::string RankProcesses::mine() {
  const host::Process self = host::this_process();
  return fmt::format("{} {} {} {}", self.id, self.start, host::process_namespace(), host_name());
}

RankProcesses::RankProcesses(const std::vector<std::string>& lines, const std::vector<int>& hosts,
                             int rank)
    : rank_(rank), hosts_(static_cast<int>(std::set(hosts.begin(), hosts.end()).size())) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    Peer& peer = peers_.emplace_back();
    peer.on = hosts[i];
    std::string space;
    std::istringstream words(lines[i]);
    words >> peer.process.id >> peer.process.start >> space >> peer.host;
    peer.visible =
        hosts[i] == hosts[static_cast<std::size_t>(rank)] && space == host::process_namespace();
  }
}

AbsentRank RankProcesses::absent(int rank) const {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  return {rank, peer.visible ? host::described(peer.process)
                             : fmt::format("on host {}: unknown", peer.host)};
}

bool RankProcesses::on_this_host(int rank) const {
  const auto on = [&](int each) { return peers_[static_cast<std::size_t>(each)].on; };
  return on(rank) == on(rank_);
}

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
