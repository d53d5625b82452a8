// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/schedule_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

namespace zero::audit {
namespace {

/// One walk over the schedule; each member function checks one promise.
class Walk {
 public:
  Walk(const ScheduleInput& input, const Schedule& schedule) : input_(input), schedule_(schedule) {}

  std::string run() {
    issue(-1, schedule_.begin);
    for (int i = 0; i < static_cast<int>(schedule_.steps.size()); ++i) walk(i);
    expect(live_.empty(), "a window stays gathered after the micro-batch");
    std::int64_t end = 0;
    for (const Window& window : schedule_.windows)
      end = std::max(end, window.offset + window.bytes);
    expect(end == schedule_.arena_bytes, "the arena does not end with its last window");
    expect(peak_ == schedule_.peak_live_elements, "peak_live_elements is not the largest moment");
    expect(gathers_ == schedule_.gathers, "gathers is not the number of gathers issued");
    check_pairs();
    check_gradients();
    return text_;
  }

 private:
  const Window& window(int w) const { return schedule_.windows.at(static_cast<std::size_t>(w)); }
  std::int64_t elements(int w) const {
    return input_.units.at(static_cast<std::size_t>(window(w).unit)).gathered_elements;
  }
  void expect(bool holds, std::string_view what) {
    if (!holds) text_ += fmt::format("{}\n", what);
  }

  void issue(int i, const std::vector<int>& list) {
    for (const int w : list) {
      expect(window(w).kind == Window::Kind::parameters, "a gradient window is gathered");
      expect(window(w).issue == i, fmt::format("window {} is not issued where it says", w));
      expect(live_.insert(w).second, fmt::format("window {} is gathered twice", w));
      ++gathers_;
    }
    std::int64_t ahead = 0;
    std::int64_t live = 0;
    int units_ahead = 0;
    std::int64_t last = 0;  // elements of the window used last
    std::set<int> units;
    for (const int w : live_) {
      live += elements(w);
      expect(units.insert(window(w).unit).second,
             fmt::format("step {}: unit {} has two windows", i, window(w).unit));
      if (window(w).first <= i) continue;
      ahead += elements(w);
      ++units_ahead;
      last = elements(w);  // windows are in order of first use
    }
    peak_ = std::max(peak_, live);
    check_ahead(i, ahead, units_ahead, last);
    expect(live <= live_limit() || live_.size() == 1,
           fmt::format("step {}: {} elements live, limit {}", i, live, live_limit()));
  }

  /// DeepSpeed's default, or any two units gathered for uses behind one another, if none is given.
  std::int64_t live_limit() const {
    if (input_.limits.live_elements) return *input_.limits.live_elements;
    std::int64_t limit = 1'000'000'000;
    int last = -1;
    for (const Use& use : input_.uses) {
      const auto& unit = input_.units.at(static_cast<std::size_t>(use.unit.index));
      if (!use.needs_parameters || unit.gathered_bytes == 0) continue;
      if (last >= 0 && last != use.unit.index) {
        const auto& before = input_.units.at(static_cast<std::size_t>(last));
        limit = std::max(limit, before.gathered_elements + unit.gathered_elements);
      }
      last = use.unit.index;
    }
    return limit;
  }

  /// Two units ahead without a limit; one more only if it is no smaller than those before it.
  void check_ahead(int i, std::int64_t ahead, int units_ahead, std::int64_t last) {
    const std::optional<std::int64_t>& limit = input_.limits.prefetch_elements;
    if (limit) {
      expect(ahead <= *limit,
             fmt::format("step {}: {} elements ahead, limit {}", i, ahead, *limit));
    } else {
      expect(units_ahead <= 2 || ahead - last <= last,
             fmt::format("step {}: {} units of {} elements ahead, the last of {}", i, units_ahead,
                         ahead, last));
    }
  }

  void walk(int i) {
    const ScheduleStep& step = schedule_.steps[static_cast<std::size_t>(i)];
    const Use& use = input_.uses[static_cast<std::size_t>(i)];
    expect(step.use.unit.index == use.unit.index && step.use.phase == use.phase,
           "the uses changed");
    issue(i, step.gathers);
    const bool reads = use.needs_parameters &&
                       input_.units.at(static_cast<std::size_t>(use.unit.index)).gathered_bytes > 0;
    expect(reads == (step.parameters >= 0), fmt::format("step {} awaits the wrong thing", i));
    if (step.parameters < 0) {
      expect(!step.release, fmt::format("step {} releases what it does not have", i));
      return;
    }
    const Window& w = window(step.parameters);
    expect(w.unit == use.unit.index, fmt::format("step {} reads another unit's window", i));
    expect(live_.count(step.parameters) == 1, fmt::format("step {} reads before its gather", i));
    expect(w.first <= i && i <= w.last, fmt::format("step {} is outside its window's life", i));
    expect(step.release == (w.last == i), fmt::format("step {} releases early or late", i));
    if (step.release) live_.erase(step.parameters);
  }

  void check_pairs() {
    const int count = static_cast<int>(schedule_.windows.size());
    for (int a = 0; a < count; ++a) {
      const std::vector<int>& listed = window(a).conflicts;
      for (int b = 0; b < count; ++b) {
        const Window& x = window(a);
        const Window& y = window(b);
        const bool bytes = a != b && x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
        const bool time = x.issue <= y.last && y.issue <= x.last;
        expect(!(bytes && time), fmt::format("windows {} and {} share bytes and time", a, b));
        expect(std::count(listed.begin(), listed.end(), b) == (bytes ? 1 : 0),
               fmt::format("the conflicts of window {} are wrong about {}", a, b));
      }
    }
  }

  void check_gradients() {
    for (int unit = 0; unit < static_cast<int>(input_.units.size()); ++unit) {
      std::vector<int> steps;
      std::set<int> windows;
      for (int i = 0; i < static_cast<int>(input_.uses.size()); ++i) {
        const Use& use = input_.uses[static_cast<std::size_t>(i)];
        const ScheduleStep& step = schedule_.steps[static_cast<std::size_t>(i)];
        if (use.unit.index != unit) continue;
        if (!writes_gradients(use.phase)) {
          expect(step.gradients < 0, fmt::format("step {}: a forward writes gradients", i));
          continue;
        }
        steps.push_back(i);
        windows.insert(step.gradients);
      }
      for (const int i : steps) {
        const ScheduleStep& step = schedule_.steps[static_cast<std::size_t>(i)];
        expect(step.first_gradient == (i == steps.front()), "a gradient begins at the wrong step");
        expect(step.last_gradient == (i == steps.back()), "a gradient ends at the wrong step");
      }
      if (steps.empty()) continue;
      const bool has = input_.units[static_cast<std::size_t>(unit)].gradient_bytes > 0;
      expect(windows.size() == 1 && (*windows.begin() >= 0) == has,
             fmt::format("unit {} has not one gradient window", unit));
      if (!has) continue;
      const Window& w = window(*windows.begin());
      expect(w.first == steps.front() && w.last == steps.back() && w.issue == w.first,
             fmt::format("the gradient window of unit {} has another life", unit));
    }
  }

  const ScheduleInput& input_;
  const Schedule& schedule_;
  std::set<int> live_;
  std::int64_t peak_ = 0;
  int gathers_ = 0;
  std::string text_;
};

}  // namespace

std::string violations(const ScheduleInput& input, const Schedule& schedule) {
  return Walk(input, schedule).run();
}

int gathers_of(const Schedule& schedule, int unit) {
  return static_cast<int>(
      std::count_if(schedule.windows.begin(), schedule.windows.end(), [&](const Window& window) {
        return window.unit == unit && window.kind == Window::Kind::parameters;
      }));
}

std::vector<Use> forward_and_backward(int units) {
  std::vector<Use> uses;
  for (int unit = 0; unit < units; ++unit) uses.push_back({{unit}, Phase::forward});
  for (int unit = units - 1; unit >= 0; --unit) uses.push_back({{unit}, Phase::backward});
  return uses;
}

}  // namespace zero::audit
