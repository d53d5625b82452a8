// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/fault_injector.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "collectives/communicator.h"
#include "files/file_system.h"
#include "launch/config/train_config.h"
#include "launch/process/configuration_error.h"

namespace zero {
namespace {

using Clock = FaultActions::Clock;

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::optional<FaultPhase> phase_named(std::string_view name) {
  const auto found = std::ranges::find(kFaultPhases, name);
  if (found == kFaultPhases.end()) return std::nullopt;
  return static_cast<FaultPhase>(found - kFaultPhases.begin());
}

bool of_collectives(const Fault& fault) {
  return needs_collective(fault.kind) || fault.kind == FaultKind::slow_link ||
         !fault.collective.empty() || fault.phase == FaultPhase::gather ||
         fault.phase == FaultPhase::reduce;
}

/// Whether the phase comes only in steps in which it is due: a save, a validation.
bool comes_late(const Fault& fault) {
  return fault.phase == FaultPhase::save || fault.phase == FaultPhase::validation;
}

/// Whether the kind ends the whole process, or cuts it off.
bool takes_the_process(FaultKind kind) {
  using enum FaultKind;
  return kind == kill || kind == stop || kind == segv || kind == out_of_memory || kind == cut;
}

}  // namespace

FaultInjector::FaultInjector(const FaultOptions& options, int rank, int world, FaultActions actions)
    : rank_(rank),
      world_(world),
      actions_(std::move(actions)),
      marks_(options.marks),
      units_(options.units),
      drawn_(options.drawn),
      began_(actions_.now()) {
  for (std::size_t i = 0; i < options.listed.size(); ++i) {
    const Fault& fault = options.listed[i];
    const std::string mark = fmt::format("fault_{}", i);
    if (fault.rank != rank) continue;
    if (marks_.has(mark)) {
      actions_.say(fmt::format(
          "run.faults: rank {}: {} acts no more: an earlier attempt has left {}; remove that file, "
          "or give another run.fault_marks, for a fault that is to act",
          rank, text_of(fault), marks_.path(mark)));
    } else {
      armed_.push_back({.fault = fault, .mark = mark});
    }
  }
  std::vector<FaultKind> kinds = drawn_ ? drawn_->kinds : std::vector<FaultKind>{};
  for (const Armed& armed : armed_) kinds.push_back(armed.fault.kind);
  hears_collectives_ = drawn_ || std::ranges::any_of(armed_, of_collectives, &Armed::fault);
  alters_collectives_ = std::ranges::any_of(kinds, needs_collective);
  if (std::ranges::count(kinds, FaultKind::disk_full) > 0) {
    disk_ = std::make_unique<FullDisk>(files::disk());
  }
  if (!drawn_) return;
  first_drawn_ = marks_.next_number("drawn");
  arm_drawn(first_drawn_);
}

/// Arms this rank's first drawn fault from number `from` on.
void FaultInjector::arm_drawn(std::int64_t from) {
  for (std::int64_t number = from;; ++number) {
    const Fault fault = drawn_fault(*drawn_, number, world_);
    if (fault.rank != rank_) continue;
    const double after = static_cast<double>(number - first_drawn_ + 1) * drawn_->every;
    armed_.push_back({.fault = fault,
                      .mark = fmt::format("drawn_{}", number),
                      .number = number,
                      .due = began_ + duration_of(after)});
    return;
  }
}

void FaultInjector::phase(std::int64_t step, std::string_view name) {
  step_ = step;
  phase_ = name;
  if (name == name_of(FaultPhase::forward) && !trains_) forget_earlier_steps();
  const std::optional<FaultPhase> phase = phase_named(name);
  // Units tell of forward and backward.
  if (phase && phase != FaultPhase::forward && phase != FaultPhase::backward) {
    meet({.phase = phase});
  }
}

/// Faults of steps before the first one of this attempt do not act.
void FaultInjector::forget_earlier_steps() {
  trains_ = true;
  for (Armed& armed : armed_) {
    if (armed.fault.step > 0 && armed.fault.step < step_) armed.done = true;
  }
}

FaultInjector::~FaultInjector() {
  if (phase_ != name_of(FaultPhase::end)) return;
  try {
    for (const Armed& armed : armed_) {
      if (!armed.done && !armed.due) tell_missed(armed.fault);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): no more than a line for people is lost
  }
}

void FaultInjector::tell_missed(const Fault& fault) const {
  const std::string unit = fault.unit.empty() ? "any unit" : fault.unit;
  actions_.say(fmt::format(
      "run.faults: rank {}: {} did not act: there was no {} of {} at step {}; zero_train --plan "
      "--schedule names the units and what they gather and reduce",
      rank_, text_of(fault), fault.phase ? name_of(*fault.phase) : "collective",
      fault.collective.empty() ? unit : fault.collective, fault.step));
}

void FaultInjector::unit(std::string_view name, Phase phase) {
  slow_down();
  if (phase_ == name_of(FaultPhase::validation)) return;
  meet({.phase = writes_gradients(phase) || phase == Phase::recompute ? FaultPhase::backward
                                                                      : FaultPhase::forward,
        .both = phase == Phase::both,
        .unit = name});
}

FaultInjector::Place FaultInjector::place_of(const Collective& collective) const {
  Place place{.unit = collective.purpose, .collective = &collective};
  const bool computes =
      phase_ == name_of(FaultPhase::forward) || phase_ == name_of(FaultPhase::backward);
  // run.check_collectives gathers what other calls sum, and checksums.
  const bool of_unit = units_.empty() || std::ranges::count(units_, collective.purpose) > 0;
  if (collective.operation == Operation::all_gather && of_unit) place.phase = FaultPhase::gather;
  // A reduce_scatter that run.check_collectives takes apart first exchanges what it sums.
  const bool is_part =
      collective.operation == Operation::all_to_all && phase_ == name_of(FaultPhase::backward);
  if (collective.operation == Operation::reduce_scatter || is_part ||
      (collective.operation == Operation::all_reduce && computes)) {
    place.phase = FaultPhase::reduce;
  }
  return place;
}

void FaultInjector::submitting(const CollectiveRecord& record, const CollectiveBackend& /*group*/,
                               Stream& /*stream*/) {
  if (actions_.now() < slow_link_until_) actions_.sleep(link_delay_);
  meet(place_of({.operation = record.operation, .purpose = record.purpose}));
}

FaultInjector::Answer FaultInjector::alter(const Collective& collective) {
  Place place = place_of(collective);
  place.alters = true;
  return meet(place);
}

FaultInjector::Answer FaultInjector::meet(const Place& place) {
  // A drawn fault that acts arms the next.
  for (std::size_t i = 0; i < armed_.size(); ++i) {
    if (armed_[i].done || !matches(armed_[i], place)) continue;
    const Answer answer = act(armed_[i], place);
    if (answer != Answer::pass) return answer;
  }
  return Answer::pass;
}

bool FaultInjector::matches(const Armed& armed, const Place& place) const {
  const Fault& fault = armed.fault;
  if (armed.due && (!trains_ || actions_.now() < *armed.due)) return false;
  if (fault.step > 0 && (comes_late(fault) ? step_ < fault.step : step_ != fault.step)) {
    return false;
  }
  if (place.collective != nullptr) return matches_collective(fault, place);
  if (needs_collective(fault.kind) || !fault.collective.empty()) return false;
  const bool there =
      fault.phase == place.phase || (place.both && fault.phase == FaultPhase::forward);
  return there && (fault.unit.empty() || fault.unit == place.unit);
}

bool FaultInjector::matches_collective(const Fault& fault, const Place& place) const {
  using enum FaultPhase;
  const Collective& call = *place.collective;
  if (place.alters != needs_collective(fault.kind)) return false;
  const bool own_phase = fault.phase == gather || fault.phase == reduce;
  if (own_phase ? fault.phase != place.phase : fault.collective.empty()) return false;
  if (!own_phase && fault.phase && phase_ != name_of(*fault.phase)) return false;
  if (!fault.collective.empty() && fault.collective != call_name(call.operation, call.purpose)) {
    return false;
  }
  if (!fault.unit.empty() && fault.unit != place.unit) return false;
  if (fault.kind == FaultKind::flip_wire) return call.brought > 0;
  return call.given > 0 ||
         (fault.kind != FaultKind::flip_memory && fault.kind != FaultKind::resize);
}

std::string FaultInjector::where(const Place& place) const {
  std::string text = step_ > 0 ? fmt::format("step {}, ", step_) : "";
  if (place.collective != nullptr) {
    return text + call_name(place.collective->operation, place.collective->purpose);
  }
  text += place.phase ? name_of(*place.phase) : phase_;
  return place.unit.empty() ? text : fmt::format("{} {}", text, place.unit);
}

FaultInjector::Answer FaultInjector::act(Armed& armed, const Place& place) {
  armed.done = true;
  const Armed now = armed;  // arming the next drawn fault may move it
  const Fault& fault = now.fault;
  if (now.due) arm_drawn(now.number + 1);
  const std::string what =
      fmt::format("run.faults: rank {}: {} at {}", rank_, text_of(fault), where(place));
  if (!marks_.leave(now.mark, what)) return Answer::pass;
  actions_.say(what);
  switch (fault.kind) {
    case FaultKind::kill:
      actions_.signal(SIGKILL);
      break;
    case FaultKind::stop:
      actions_.signal(SIGSTOP);
      break;
    case FaultKind::segv:
      actions_.signal(SIGSEGV);
      break;
    case FaultKind::error:
      fail("[rank {}] run.faults: thrown on purpose at {}", rank_, where(place));
    case FaultKind::loop:
      actions_.loop();
      break;
    case FaultKind::skip:
      return Answer::skip;
    case FaultKind::resize:
      return Answer::resize;
    case FaultKind::slow:
      slowness_ = fault.factor;
      slow_until_ = end_of(fault);
      worked_from_ = actions_.now();
      break;
    case FaultKind::cut:
      actions_.say(
          fmt::format("run.faults: rank {}: {} TCP connections are cut", rank_, actions_.cut()));
      break;
    case FaultKind::slow_link:
      link_delay_ = fault.delay;
      slow_link_until_ = end_of(fault);
      break;
    case FaultKind::disk_full:
      disk_->fill_until(end_of(fault));
      break;
    case FaultKind::out_of_memory:
      actions_.fill_memory();
      break;
    case FaultKind::flip_memory:
      return Answer::flip_given;
    case FaultKind::flip_wire:
      return Answer::flip_brought;
  }
  return Answer::pass;
}

Clock::time_point FaultInjector::end_of(const Fault& fault) const {
  return fault.seconds > 0 ? actions_.now() + duration_of(fault.seconds) : Clock::time_point::max();
}

/// Sleeps: all that the rank does from one unit to the next takes `slowness_` times as long.
void FaultInjector::slow_down() {
  if (actions_.now() >= slow_until_) return;
  const std::chrono::duration<double> worked = actions_.now() - worked_from_;
  actions_.sleep(worked.count() * (slowness_ - 1));
  worked_from_ = actions_.now();
}

std::unique_ptr<FaultInjector> make_fault_injector(TrainConfig& config, const Communicator& host) {
  const FaultOptions& faults = config.run.faults;
  if (faults.empty()) return nullptr;
  if (host.backend() == BackendKind::local && host.size() > 1) {
    std::vector<FaultKind> kinds = faults.drawn ? faults.drawn->kinds : std::vector<FaultKind>{};
    for (const Fault& fault : faults.listed) kinds.push_back(fault.kind);
    const auto found = std::ranges::find_if(kinds, takes_the_process);
    if (found != kinds.end()) {
      throw ConfigurationError(fmt::format(
          "run.faults: {} is of a whole process, and this one has all {} ranks as threads; start "
          "them as processes: mpirun -np {} zero_train",
          name_of(*found), host.size(), host.size()));
    }
  }
  auto injector = std::make_unique<FaultInjector>(faults, host.rank(), host.size());
  if (files::FileSystem* const disk = injector->disk()) {
    config.checkpoints.disk = disk;
    config.engine.tiers.file.disk = disk;
  }
  return injector;
}

}  // namespace zero
