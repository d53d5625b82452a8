// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/attendance.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace zero::nccl {
namespace {

using std::chrono::milliseconds;

std::string key_of(const Attendance::GroupProgress& group, std::size_t rank) {
  return fmt::format("{}/calls/{}", group.name, rank);
}

}  // namespace

// -1: the rank has never been quiet.
std::int64_t Attendance::calls_of(const GroupProgress& group, std::size_t rank) const {
  const std::optional<std::string> text = store_.find(key_of(group, rank));
  if (!text) return -1;
  std::int64_t calls = 0;
  const char* const end = text->data() + text->size();
  const auto [last, error] = std::from_chars(text->data(), end, calls);
  ZERO_CHECK(error == std::errc{} && last == end,
             "{}: rank {} tells \"{}\" as the number of its calls, expected a whole number",
             group.who, rank, *text);
  return calls;
}

void Attendance::look(const std::vector<GroupProgress>& groups) {
  std::erase_if(quiet_, [&](const auto& known) {  // groups that have ended
    return std::ranges::none_of(
        groups, [&](const GroupProgress& group) { return group.name == known.first; });
  });
  for (const GroupProgress& group : groups) {
    const auto known = quiet_.find(group.name);
    if (known != quiet_.end() && known->second.calls == group.calls) {
      look(group, known->second);
    } else {
      quiet_.erase(group.name);
      quiet_[group.name].calls = group.calls;
    }
  }
}

// A rank publishes its count at the second look. The wait begins at the third, when ranks that
// arrived at the same time have published theirs.
void Attendance::look(const GroupProgress& group, Quiet& quiet) {
  ++quiet.looks;
  if (quiet.looks == 1) {
    store_.set(key_of(group, static_cast<std::size_t>(group.rank)), std::to_string(group.calls));
    return;
  }
  if (!quiet.wait) quiet.wait.emplace(*context_);
  const LongWait::Due due = quiet.wait->due();
  if (due == LongWait::Due::nothing) return;
  const Waiting waiting{.who = group.who, .step = group.step, .absent = absent(group)};
  const bool over = due == LongWait::Due::timeout;
  if (!waiting.absent.empty() && over) throw Error(quiet.wait->overdue(waiting));
  if (!waiting.absent.empty()) quiet.wait->warn(waiting);
  if (over) quiet.wait.emplace(*context_);  // all have come; no rank makes a call
}

std::vector<AbsentRank> Attendance::absent(const GroupProgress& group) const {
  std::vector<AbsentRank> ranks;
  if (group.calls == 0) return ranks;
  for (std::size_t rank = 0; rank < group.hosts.size(); ++rank) {
    const std::int64_t calls = calls_of(group, rank);
    if (calls >= group.calls || static_cast<int>(rank) == group.rank) continue;
    ranks.push_back(
        {static_cast<int>(rank), fmt::format("on host {}: unknown", group.hosts[rank])});
  }
  return ranks;
}

milliseconds Attendance::until_due(milliseconds most) const {
  for (const auto& [name, quiet] : quiet_) {
    if (quiet.wait) most = quiet.wait->until_due(most);
  }
  return most;
}

}  // namespace zero::nccl
