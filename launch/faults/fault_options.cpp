// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/fault_options.h"

#include <fmt/format.h>

#include "base/mixed_bits.h"

namespace zero {
namespace {

/// The phases in which a drawn fault of a kind may act.
std::vector<FaultPhase> phases_of(FaultKind kind, bool saves) {
  using enum FaultPhase;
  if (needs_collective(kind)) return {gather, reduce};
  if (kind == FaultKind::loop) return {forward, backward};
  if (lasts(kind)) return {forward};
  std::vector<FaultPhase> all{gather, forward, backward, reduce, update};
  if (saves) all.push_back(save);
  return all;
}

}  // namespace

Fault drawn_fault(const DrawnFaults& drawn, std::int64_t number, int world) {
  std::uint64_t taken = 0;
  const std::uint64_t state = split_mix(drawn.seed, static_cast<std::uint64_t>(number));
  const auto below = [&](std::size_t count) { return split_mix(state, taken++) % count; };
  Fault fault;
  fault.kind = drawn.kinds[below(drawn.kinds.size())];
  fault.rank = static_cast<int>(below(static_cast<std::size_t>(world)));
  const std::vector<FaultPhase> phases = phases_of(fault.kind, drawn.saves);
  fault.phase = phases[below(phases.size())];
  fault.factor = below(2) == 0 ? 2 : 10;
  // A full disk ends a run that must save: it stays full.
  if (fault.kind != FaultKind::disk_full && lasts(fault.kind)) fault.seconds = drawn.every / 2;
  return fault;
}

std::string text_of(const Fault& fault) {
  std::string text(name_of(fault.kind));
  if (fault.kind == FaultKind::slow) text += fmt::format(" x{:g}", fault.factor);
  if (fault.kind == FaultKind::slow_link) text += fmt::format(" by {:g} ms", 1000 * fault.delay);
  if (fault.seconds > 0) text += fmt::format(" for {:g} s", fault.seconds);
  return text;
}

}  // namespace zero
