// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/flight_recorder.h"

#include <algorithm>
#include <exception>

#include "base/nanoseconds.h"
#include "collectives/communicator.h"
#include "collectives/mesh.h"

namespace zero {
namespace {

/// Clocks of two chips drift apart: points are compared over at most this many seconds.
constexpr double kAnchorSeconds = 10;
/// The weight of the newest step in the mean.
constexpr double kNewest = 0.125;

/// Calls `work`, whose errors must not fail a run: that record is lost.
template <typename Work>
void try_to(const Work& work) noexcept {
  try {
    work();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
  }
}

/// Whether the timing of a step begins. A pass that reads prompts has no usual time.
bool begins_step(std::string_view phase) { return phase == "forward" || phase == "decode"; }

/// Whether the timing of a step ends.
bool ends_step(std::string_view phase) {
  return phase == "validation" || phase == "between steps" || phase == "save" || phase == "end";
}

}  // namespace

void FlightRecorder::know_group(const Communicator& communicator, const std::string& name,
                                std::vector<int> world_ranks) {
  if (communicator.size() == 1) return;
  Group& group = groups_[communicator.implementation()->id()];
  if (group.given) return;
  const bool used = group.number && group.name.empty();
  if (used && named_.try_emplace({name, world_ranks}, *group.number).second) {
    file_.name_group(*group.number, name, world_ranks);
  } else {
    group.number.reset();
  }
  group = {.number = group.number, .name = name, .ranks = std::move(world_ranks), .given = true};
  if (!group.number) group.number = number_of(group);
}

void FlightRecorder::know_mesh(const Mesh& mesh) {
  for (const Mesh::Group& group : mesh.groups()) {
    know_group(*group.communicator, group.name, group.ranks);
  }
}

void FlightRecorder::split(const CollectiveBackend& group, const CollectiveBackend& part) noexcept {
  try_to([&] {
    const auto whole = groups_.find(group.id());
    if (whole == groups_.end() || whole->second.name.empty()) return;
    // A backend from elsewhere may not say whom its parts have.
    if (std::cmp_not_equal(part.members().size(), part.size())) return;
    Group known{.name = "part of " + whole->second.name};
    for (const int member : part.members()) {
      known.ranks.push_back(whole->second.ranks.at(static_cast<std::size_t>(member)));
    }
    groups_[part.id()] = std::move(known);
  });
}

std::uint32_t FlightRecorder::group_of(const CollectiveBackend& group) {
  Group& known = groups_[group.id()];
  if (!known.number) known.number = number_of(known);
  return *known.number;
}

std::uint32_t FlightRecorder::number_of(const Group& group) {
  if (group.name.empty()) return file_.add_group("", {});
  const auto [found, is_new] = named_.try_emplace({group.name, group.ranks}, FlightFile::kNoGroup);
  if (is_new) found->second = file_.add_group(group.name, group.ranks);
  return found->second;
}

void FlightRecorder::submitting(const CollectiveRecord& record, const CollectiveBackend& group,
                                Stream& stream) {
  stream_ = &stream;
  submitted_ = file_.submit({.operation = static_cast<std::uint8_t>(record.operation),
                             .group = group_of(group),
                             .name = record.purpose,
                             .bytes = record.total_bytes,
                             .disk_decides = group.context()->disk_decides()});
  if (stream.enqueues()) return;
  stream.note([file = &file_, ticket = submitted_] { file->started(ticket, FlightFile::now()); });
}

void FlightRecorder::collective(const CollectiveRecord& /*record*/, Mark begin, Mark end) noexcept {
  const FlightFile::Ticket ticket = std::exchange(submitted_, 0);
  if (ticket == 0) return;
  try_to([&] {
    if (!stream_->enqueues()) {
      stream_->note([file = &file_, ticket] { file->ended(ticket, FlightFile::now()); });
      return;
    }
    {
      const std::lock_guard fresh(fresh_mutex_);
      fresh_.push_back({stream_, ticket, std::move(begin), std::move(end)});
    }
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) read_marks();
  });
}

void FlightRecorder::host_call(const CollectiveBackend& group, std::string_view name) noexcept {
  try_to([&] {
    host_call_ = file_.submit({.kind = flight::Kind::host_call,
                               .group = group_of(group),
                               .name = name,
                               .disk_decides = group.context()->disk_decides()});
    file_.started(host_call_, FlightFile::now());
  });
}

void FlightRecorder::host_call_ended(const CollectiveBackend& /*group*/) noexcept {
  file_.ended(std::exchange(host_call_, 0), FlightFile::now());
}

void FlightRecorder::phase(std::int64_t step, std::string_view name) {
  const bool validates = name == "validation";
  const bool first = validates && !std::exchange(validated_, true);
  file_.phase(step, first ? "first validation" : name);  // which warms up
  if (begins_step(name) && step != timed_step_) {
    timed_step_ = step;
    step_began_ = FlightFile::now();
  } else if (step_began_ != 0 && ends_step(name)) {
    const double seconds = to_seconds(FlightFile::now() - std::exchange(step_began_, 0));
    if (++steps_ == 1) return;  // warms up
    mean_step_ = steps_ == 2 ? seconds : mean_step_ + kNewest * (seconds - mean_step_);
    file_.mean_step(mean_step_);
  }
}

void FlightRecorder::poll() noexcept {
  try_to([this] {
    const std::lock_guard lock(mutex_);
    read_marks();
  });
}

void FlightRecorder::read_marks() {
  {
    const std::lock_guard fresh(fresh_mutex_);
    for (Marked& each : fresh_) marked_[each.stream].push_back(std::move(each));
    fresh_.clear();
  }
  for (auto& [stream, all] : marked_) {
    while (!all.empty() && settle(all.front())) all.pop_front();
  }
}

bool FlightRecorder::settle(Marked& marked) {
  try {
    if (!marked.started) {
      const std::optional<std::int64_t> began = time_of(marked.begin, marked.ticket);
      if (!began) return false;
      file_.started(marked.ticket, *began);
      marked.started = true;
    }
    const std::optional<std::int64_t> ended = time_of(marked.end, marked.ticket);
    if (!ended) return false;
    file_.ended(marked.ticket, *ended);
  } catch (const std::exception&) {  // the device has failed: nothing more will be known
  }
  return true;
}

std::optional<std::int64_t> FlightRecorder::time_of(const Mark& mark, FlightFile::Ticket ticket) {
  if (!mark.seconds_since(mark)) return std::nullopt;
  const std::int64_t now = FlightFile::now();
  if (!anchor_) anchor_ = {mark, now};
  const std::optional<double> since = mark.seconds_since(anchor_->mark);
  std::int64_t time = anchor_->time + to_nanoseconds(since.value_or(0));
  // A point lies between its submission and now: what contradicts that is the anchor's error.
  const std::int64_t right = std::clamp(time, std::min(file_.enqueued(ticket), now), now);
  anchor_->time += right - time;
  if (since.value_or(0) > kAnchorSeconds) anchor_ = {mark, right};
  return right;
}

}  // namespace zero
