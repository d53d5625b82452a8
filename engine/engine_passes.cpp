// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_core.h"

namespace zero {

/// A step of a sealed schedule has its windows, and so its addresses, once and for all. What a body
/// does to the engine's host side is which gradients it asks for: that is done again without it. A
/// body that finds other gradients asked for than before may submit other work.
void EngineCore::repeat(int step, std::size_t nth, const Stream::Work& body) {
  if (!options_.graphs) return body();
  const UnitUse& use = drive().schedule.steps[static_cast<std::size_t>(step)].use;
  const bool has_gradients = use.phase != Phase::forward && !evaluating_;
  std::deque<Pass>& passes = drive().passes[static_cast<std::size_t>(step)];
  if (nth == passes.size()) {
    passes.emplace_back().name =
        fmt::format("{} {}", units_[static_cast<std::size_t>(use.unit)].name,
                    has_gradients ? "backward" : "forward");
  }
  Pass& pass = passes[nth];
  std::vector<char> none;
  std::vector<char>& asked = has_gradients ? asked_[static_cast<std::size_t>(use.unit)] : none;
  if (pass.before != asked) {
    pass.kept = nullptr;
    pass.before = asked;
  }
  bool called = false;
  const auto noted = [&] {
    called = true;
    asked = pass.before;  // it may be called twice
    body();
  };
  device_.compute().repeat(
      pass.kept, pass.name,
      options_.checked ? CapturedGraph::Check::always : CapturedGraph::Check::at_first,
      std::ref(noted));
  if (called) {
    pass.after = asked;
  } else {
    asked = pass.after;
  }
}

KeptPasses EngineCore::kept_passes() const {
  KeptPasses all;
  for (const Drive* drive : {&training_, &evaluation_}) {
    for (const std::deque<Pass>& of_step : drive->passes) {
      for (const Pass& pass : of_step) {
        if (!pass.kept) continue;
        if (!pass.kept->refusal().empty() && all.refused++ == 0) all.refusal = pass.kept->refusal();
        if (pass.kept->pieces() == 0) continue;
        ++all.passes;
        all.pieces += pass.kept->pieces();
      }
    }
  }
  return all;
}

void EngineCore::forget_passes() {
  ZERO_CHECK(!leased_, "[rank {}] forget_passes: a lease has not ended; only between leases",
             world_.rank());
  for (Drive* drive : {&training_, &evaluation_}) {
    for (std::deque<Pass>& of_step : drive->passes) of_step.clear();
  }
}

}  // namespace zero
