// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <iterator>

#include "base/checked_math.h"
#include "base/consecutive.h"
#include "device/lifetime_plan.h"

namespace zero {
namespace {

// Compute steps for which a gradient window stays unused after its last write, so that its
// reduction can overlap compute: at least one, and one more if the memory limit allows. A reduction
// waits for every rank, so the second step absorbs the drift between ranks in forward, which
// prefetched gathers do not remove; with one step, the third backward of a micro-batch waits for
// all of it.
constexpr int kLeastGradientLag = 1;
constexpr int kLongestGradientLag = 2;
// Communication runs in the order of issue, and a reduction may be due two compute steps after the
// last write of its gradient. A gather that is used later than that is issued behind the reduction,
// two compute steps before its use.
constexpr int kGatherLead = kLeastGradientLag + 1;
// Units gathered ahead of use if no limit is given: each has the compute of as many to arrive in.
constexpr int kUnitsAhead = kGatherLead;

constexpr std::int64_t kSmallGradient = 50'000'000;  // elements; if no prefetch limit is given

/// The maker of one schedule; each member function is one pass over the uses.
class Maker {
 public:
  explicit Maker(const ScheduleInput& input)
      : input_(input), steps_(static_cast<int>(input.uses.size())) {
    for (const Use& use : input.uses) {
      ZERO_CHECK(use.unit.index >= 0 && use.unit.index < static_cast<int>(input.units.size()),
                 "schedule: use of unit {}, but there are {} units", use.unit.index,
                 input.units.size());
    }
    live_needed_.assign(static_cast<std::size_t>(steps_), 0);
    schedule_.pair_elements = largest_pair();
    schedule_.live_limit =
        input.limits.live_elements.value_or(std::max(kLiveElements, schedule_.pair_elements));
  }

  Schedule make() {
    schedule_.steps.resize(static_cast<std::size_t>(steps_));
    for (int i = 0; i < steps_; ++i) step(i).use = input_.uses[static_cast<std::size_t>(i)];
    cut_parameter_windows();
    mark_gradients();
    issue_gathers();
    cut_gradient_windows();
    place_windows();
    return std::move(schedule_);
  }

 private:
  ScheduleStep& step(int i) { return schedule_.steps[static_cast<std::size_t>(i)]; }
  Window& window(int w) { return schedule_.windows[static_cast<std::size_t>(w)]; }
  const Window& window(int w) const { return schedule_.window(w); }
  std::int64_t gathered_elements(int w) const { return size(window(w).unit).gathered_elements; }
  const UnitSize& size(int unit) const { return input_.units[static_cast<std::size_t>(unit)]; }
  bool gathers(int i) const {
    const Use& use = input_.uses[static_cast<std::size_t>(i)];
    return use.needs_parameters && size(use.unit.index).gathered_bytes > 0;
  }

  /// Schedule::pair_elements; 0 if one unit at most is gathered.
  std::int64_t largest_pair() const {
    std::int64_t largest = 0;
    int before = -1;  // the unit gathered for the use before
    for (int i = 0; i < steps_; ++i) {
      if (!gathers(i)) continue;
      const int unit = input_.uses[static_cast<std::size_t>(i)].unit.index;
      if (before >= 0 && before != unit) {
        largest = std::max(largest, size(before).gathered_elements + size(unit).gathered_elements);
      }
      before = unit;
    }
    return largest;
  }

  /// Elements of the gathered units used strictly between two steps.
  std::int64_t distance(int from, int to) {
    std::int64_t elements = 0;
    for (int i = from + 1; i < to; ++i) {
      if (gathers(i)) elements += size(step(i).use.unit.index).gathered_elements;
    }
    return elements;
  }

  /// Whether keeping `unit` through the steps between two of its uses stays within the live limit.
  bool fits_live(int unit, int from, int to) const {
    for (int i = from + 1; i < to; ++i) {
      if (live_needed_[static_cast<std::size_t>(i)] + size(unit).gathered_elements >
          schedule_.live_limit)
        return false;
    }
    return true;
  }

  /// One window per run of uses of a unit close enough to keep it gathered.
  void cut_parameter_windows() {
    std::vector<int> open(input_.units.size(), -1);  // the unit's newest window
    for (int i = 0; i < steps_; ++i) {
      if (gathers(i))
        live_needed_[static_cast<std::size_t>(i)] = size(step(i).use.unit.index).gathered_elements;
    }
    for (int i = 0; i < steps_; ++i) {
      if (!gathers(i)) continue;
      const int unit = step(i).use.unit.index;
      int& w = open[static_cast<std::size_t>(unit)];
      const bool keep = w >= 0 && distance(window(w).last, i) <= input_.limits.reuse_distance &&
                        fits_live(unit, window(w).last, i);
      if (keep) {
        for (int j = window(w).last + 1; j < i; ++j)
          live_needed_[static_cast<std::size_t>(j)] += size(unit).gathered_elements;
        step(window(w).last).release = false;
      } else {
        w = static_cast<int>(schedule_.windows.size());
        schedule_.windows.push_back({.unit = unit,
                                     .kind = Window::Kind::parameters,
                                     .issue = i,
                                     .first = i,
                                     .last = i,
                                     .bytes = size(unit).gathered_bytes,
                                     .conflicts = {}});
      }
      window(w).last = i;
      step(i).parameters = w;
      step(i).release = true;
    }
  }

  /// The compute step before which window `w` may be gathered at the earliest: after the reductions
  /// that are due before its use.
  int earliest(int w) {
    for (int i = window(w).first - kGatherLead - 1; i >= 0; --i) {
      if (step(i).last_gradient && size(step(i).use.unit.index).gradient_bytes > 0) return i + 1;
    }
    return -1;
  }

  /// The gathers that have been issued before some compute step.
  struct Issued {
    int next = 0;            ///< first window not issued; windows are in order of first use
    std::int64_t live = 0;   ///< elements gathered and not released
    std::int64_t ahead = 0;  ///< of those, elements not used yet
    int units_ahead = 0;     ///< windows not used yet
  };

  /// The window of the same unit that still lies there when window `w` is due before step `i`, or
  /// has just been released; -1: none.
  int kept_for(int w, int i) const {
    const int before = newest_[static_cast<std::size_t>(window(w).unit)];
    return before >= 0 && window(before).last >= i - 1 ? before : -1;
  }

  /// Whether the limits allow the gather of the next window before step `i`.
  bool allowed(const Issued& issued, int i) const {
    const ScheduleLimits& limits = input_.limits;
    const std::int64_t elements = gathered_elements(issued.next);
    const int kept = kept_for(issued.next, i);
    const bool lies = kept >= 0 && window(kept).last >= i;
    if (issued.live + (lies ? 0 : elements) > schedule_.live_limit) return false;
    if (limits.prefetch_elements) return issued.ahead + elements <= *limits.prefetch_elements;
    // A unit larger than those ahead of it takes longer to arrive than they take to compute.
    return issued.units_ahead < kUnitsAhead || issued.ahead <= elements;
  }

  /// Issues the next gather before step `i`, or extends the window in which its unit lies still.
  void issue(Issued& issued, int i) {
    const int w = issued.next++;
    const int kept = kept_for(w, i);
    issued.ahead += gathered_elements(w);
    ++issued.units_ahead;
    if (kept < 0 || window(kept).last < i) issued.live += gathered_elements(w);
    if (kept >= 0) {
      step(window(kept).last).release = false;
      window(kept).last = window(w).last;
      part_of_[static_cast<std::size_t>(w)] = kept;
      return;
    }
    newest_[static_cast<std::size_t>(window(w).unit)] = w;
    window(w).issue = i;
    (i < 0 ? schedule_.begin : step(i).gathers).push_back(w);
  }

  /// Walks the micro-batch and issues each gather as early as the limits and the reductions allow.
  void issue_gathers() {
    newest_.assign(input_.units.size(), -1);
    part_of_ = consecutive(0, schedule_.windows.size());
    const int windows = static_cast<int>(schedule_.windows.size());
    Issued issued;
    for (int i = -1; i < steps_; ++i) {
      const int used = i < 0 ? -1 : step(i).parameters;
      if (used >= issued.next) issue(issued, i);
      if (used >= 0 && window(used).first == i) {
        issued.ahead -= gathered_elements(used);
        --issued.units_ahead;
      }
      while (issued.next < windows && earliest(issued.next) <= i && allowed(issued, i))
        issue(issued, i);
      schedule_.peak_live_elements = std::max(schedule_.peak_live_elements, issued.live);
      if (i >= 0 && step(i).release) issued.live -= gathered_elements(used);
    }
    drop_extensions();
  }

  /// Removes the windows that others have taken in.
  void drop_extensions() {
    std::vector<int> place(part_of_.size());  // of each window that stays
    std::vector<Window> all;
    for (std::size_t w = 0; w < part_of_.size(); ++w) {
      place[w] = static_cast<int>(all.size());
      if (part_of_[w] == static_cast<int>(w)) all.push_back(std::move(schedule_.windows[w]));
    }
    const auto renumber = [&](int& w) {
      if (w >= 0) w = place[static_cast<std::size_t>(part_of_[static_cast<std::size_t>(w)])];
    };
    std::ranges::for_each(schedule_.begin, renumber);
    for (ScheduleStep& step : schedule_.steps) {
      std::ranges::for_each(step.gathers, renumber);
      renumber(step.parameters);
    }
    schedule_.windows = std::move(all);
    schedule_.gathers = static_cast<int>(schedule_.windows.size());
  }

  /// The first and the last write of each unit's gradient.
  void mark_gradients() {
    first_gradient_.assign(input_.units.size(), -1);
    last_gradient_.assign(input_.units.size(), -1);
    for (int i = 0; i < steps_; ++i) {
      if (!writes_gradients(step(i).use.phase)) continue;
      const auto unit = static_cast<std::size_t>(step(i).use.unit.index);
      if (first_gradient_[unit] < 0) first_gradient_[unit] = i;
      last_gradient_[unit] = i;
    }
    for (std::size_t unit = 0; unit < input_.units.size(); ++unit) {
      if (first_gradient_[unit] < 0) continue;
      step(first_gradient_[unit]).first_gradient = true;
      step(last_gradient_[unit]).last_gradient = true;
    }
  }

  /// One window per unit from its first to its last backward; units whose gradient has memory of
  /// its own have none.
  void cut_gradient_windows() {
    const std::vector<int>& first = first_gradient_;
    const std::vector<int>& last = last_gradient_;
    for (std::size_t unit = 0; unit < first.size(); ++unit) {
      if (first[unit] < 0 || input_.units[unit].gradient_bytes == 0) continue;
      const int w = static_cast<int>(schedule_.windows.size());
      schedule_.windows.push_back({.unit = static_cast<int>(unit),
                                   .kind = Window::Kind::gradients,
                                   .issue = first[unit],
                                   .first = first[unit],
                                   .last = last[unit],
                                   .bytes = input_.units[unit].gradient_bytes,
                                   .conflicts = {}});
      for (int i = first[unit]; i <= last[unit]; ++i) {
        if (step(i).use.unit.index == static_cast<int>(unit) && writes_gradients(step(i).use.phase))
          step(i).gradients = w;
      }
    }
  }

  /// Compute steps after a window's last use for which no other window may have its bytes.
  int lag(const Window& window) const {
    if (window.kind == Window::Kind::parameters) return 0;
    const std::int64_t elements = size(window.unit).gradient_elements;
    const std::int64_t at_once = kLongestGradientLag + 1;  // this one and those kept for reductions
    const bool small = elements <= input_.limits.prefetch_elements.value_or(kSmallGradient) &&
                       elements <= schedule_.live_limit / at_once;
    return small ? kLongestGradientLag : kLeastGradientLag;
  }

  /// Behind `begin`: no two windows of a kind that are alive together overlap. Returns the end of
  /// the last one.
  std::int64_t place_windows(Window::Kind kind, std::int64_t begin) {
    std::vector<int> own;
    std::vector<Lifetime> lifetimes;
    for (int w = 0; w < static_cast<int>(schedule_.windows.size()); ++w) {
      const Window& each = window(w);
      if (each.kind != kind) continue;
      own.push_back(w);
      lifetimes.push_back({each.bytes, {{each.issue, each.last + lag(each)}}});
    }
    const LifetimePlaces places = place_lifetimes(lifetimes);
    for (std::size_t i = 0; i < own.size(); ++i) window(own[i]).offset = begin + places.offsets[i];
    return begin + places.total;
  }

  /// Places parameters and gradients in separate ranges, because ranks of a host may share the
  /// memory of gathered parameters but never that of gradients. Then finds the pairs that share
  /// bytes.
  void place_windows() {
    const std::int64_t end = place_windows(Window::Kind::parameters, 0);
    schedule_.gradients_begin = round_up(end, kPlaceAlignment);
    const std::int64_t last = place_windows(Window::Kind::gradients, schedule_.gradients_begin);
    schedule_.arena_bytes = last > schedule_.gradients_begin ? last : end;
    for (std::size_t a = 0; a < schedule_.windows.size(); ++a) {
      for (std::size_t b = 0; b < schedule_.windows.size(); ++b) {
        const Window& x = schedule_.windows[a];
        const Window& y = schedule_.windows[b];
        if (a != b && x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes) {
          schedule_.windows[a].conflicts.push_back(static_cast<int>(b));
        }
      }
    }
  }

  const ScheduleInput& input_;
  int steps_;
  Schedule schedule_;
  std::vector<std::int64_t>
      live_needed_;                  // elements that each step needs present, kept units included
  std::vector<int> newest_;          // per unit: the window issued last, -1: none
  std::vector<int> part_of_;         // per window: the one that took it in, or itself
  std::vector<int> first_gradient_;  // per unit: compute steps, -1: none
  std::vector<int> last_gradient_;
};

std::string describe(const Window& window, const std::vector<std::string>& units) {
  return fmt::format("{} [{}, +{})", units.at(static_cast<std::size_t>(window.unit)), window.offset,
                     window.bytes);
}

}  // namespace

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::both:
      return "forward+backward";
    case Phase::recompute:
      return "recompute";
  }
  return "?";
}

std::string limit_text(const std::optional<std::int64_t>& limit) {
  return limit ? fmt::format("{}", *limit) : "auto";
}

Schedule make_schedule(const ScheduleInput& input) { return Maker(input).make(); }

std::string Schedule::dump(const std::vector<std::string>& unit_names) const {
  std::string text;
  const auto out = std::back_inserter(text);
  const auto gather = [&](int w) {
    fmt::format_to(out, "  gather  {}\n", describe(window(w), unit_names));
  };
  fmt::format_to(out, "micro-batch begins\n");
  for (const int w : begin) gather(w);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const ScheduleStep& step = steps[i];
    const std::string& unit = unit_names.at(static_cast<std::size_t>(step.use.unit.index));
    fmt::format_to(out, "step {}: {} {}\n", i, name_of(step.use.phase), unit);
    for (const int w : step.gathers) gather(w);
    if (step.parameters >= 0)
      fmt::format_to(out, "  wait    parameters {}\n",
                     describe(window(step.parameters), unit_names));
    if (step.gradients >= 0)
      fmt::format_to(out, "  write   gradients {}{}\n",
                     describe(window(step.gradients), unit_names),
                     step.first_gradient ? "" : " (adds)");
    if (step.release) fmt::format_to(out, "  release {}\n", unit);
    if (step.last_gradient) fmt::format_to(out, "  reduce  {}\n", unit);
  }
  fmt::format_to(out, "arena {} bytes, at most {} elements live, {} gathers a micro-batch\n",
                 arena_bytes, peak_live_elements, gathers);
  return text;
}

std::uint64_t Schedule::hash() const {
  std::vector<std::string> names;  // every window's unit has a step
  for (const ScheduleStep& step : steps) {
    for (auto unit = static_cast<int>(names.size()); unit <= step.use.unit.index; ++unit)
      names.push_back(fmt::format("{}", unit));
  }
  const std::string text = dump(names);
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace zero
