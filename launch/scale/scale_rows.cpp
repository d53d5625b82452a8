// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Rows of a report from runs: medians, spreads, efficiency, and the noise that hides effects.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/median.h"
#include "launch/scale/scale_report.h"

namespace zero {
namespace {

ScaleRow row_of_runs(const ScalePoint& point, const std::vector<const ScaleRun*>& runs) {
  ScaleRow row{.point = point};
  if (runs.empty()) return row;
  for (const ScaleRun* run : runs) {
    row.tokens_per_second.push_back(run->figures.tokens_per_second);
  }
  row.figures = runs.front()->figures;
  for (double RunFigures::*figure :
       {&RunFigures::tokens_per_second, &RunFigures::step_seconds,
        &RunFigures::communication_seconds, &RunFigures::exposed_seconds}) {
    std::vector<double> values;
    for (const ScaleRun* run : runs) values.push_back(run->figures.*figure);
    row.figures.*figure = median(std::move(values));
  }
  const auto [least, most] = row.range();
  row.spread = (most - least) / row.median();
  std::set<std::string> hashes;
  for (const ScaleRun* run : runs) hashes.insert(run->figures.state_hash);
  if (hashes.size() > 1) row.remarks.emplace_back("the repeats' states differ (state_hash)");
  const bool exact = std::ranges::all_of(runs, [](auto* run) { return run->figures.plan_exact; });
  if (!exact) row.remarks.emplace_back("memory is not as planned");
  return row;
}

/// GPUs; or cores that the ranks' threads use, each host's at most once.
double units_of(const ScaleReport& about, const ScaleRow& row) {
  if (about.sweep.device == DeviceKind::cuda) return row.point.world;
  double units = 0;
  for (const RankHost& host : about.launcher.placement(row.point.world)) {
    units += std::min(host.ranks * row.figures.threads, about.peak.cores);
  }
  return units;
}

/// What the row is compared with: one process, else the smallest world of its line.
const ScaleRow* baseline_of(const std::vector<ScaleRow>& rows, const ScaleRow& row) {
  const ScaleRow* found = nullptr;
  for (const ScaleRow& each : rows) {
    if (!each.measured()) continue;
    if (each.point.is_baseline()) return &each;
    if (!each.point.same_line(row.point)) continue;
    if (found == nullptr || each.point.world < found->point.world) found = &each;
  }
  return found;
}

/// The row of the next lower stage that is measured, all else alike.
const ScaleRow* stage_below(const std::vector<ScaleRow>& rows, const ScaleRow& row) {
  const ScaleRow* found = nullptr;
  for (const ScaleRow& each : rows) {
    const ScalePoint& point = each.point;
    const bool alike = point.scaling == row.point.scaling && point.mesh == row.point.mesh &&
                       point.world == row.point.world && point.stage < row.point.stage;
    if (!alike || !each.measured()) continue;
    if (found == nullptr || point.stage > found->point.stage) found = &each;
  }
  return found;
}

void name_noise(const std::vector<ScaleRow>& rows, const ScaleRow* baseline, ScaleRow& row) {
  if (row.tokens_per_second.size() < 2) {
    row.remarks.emplace_back("one run: its spread is not known");
    return;
  }
  if (baseline != nullptr && baseline->point.world != row.point.world) {
    const double effect = std::abs(row.efficiency - 1);
    const double noise = std::max(row.spread, baseline->spread);
    if (noise > effect) {
      row.remarks.push_back(fmt::format("noise: spread {:.1f} %, distance to ideal {:.1f} %",
                                        100 * noise, 100 * effect));
    } else if (row.efficiency > 1) {
      row.remarks.emplace_back(
          "faster than ideal: other programs slow a run of fewer ranks down more (see the load), "
          "or caches help");
    }
  }
  const ScaleRow* const below = row.point.is_baseline() ? nullptr : stage_below(rows, row);
  if (below == nullptr) return;
  const double effect = std::abs(row.median() / below->median() - 1);
  const double noise = std::max(row.spread, below->spread);
  if (noise > effect) {
    row.remarks.push_back(fmt::format("noise: spread {:.1f} %, distance to stage {} {:.1f} %",
                                      100 * noise, below->point.stage, 100 * effect));
  }
}

}  // namespace

std::pair<double, double> ScaleRow::range() const {
  if (!measured()) return {0, 0};
  const auto [least, most] = std::ranges::minmax(tokens_per_second);
  return {least, most};
}

std::optional<double> ScaleRow::error() const {
  if (!measured() || !predicted) return std::nullopt;
  return predicted->step_seconds / figures.step_seconds - 1;
}

std::vector<ScaleRow> scale_rows(const ScaleReport& about, const std::vector<ScalePoint>& points,
                                 const std::vector<ScaleRun>& runs) {
  std::vector<ScaleRow> rows;
  const double flop = about.sweep.model.flop_per_token(about.sweep.sequence);
  for (const ScalePoint& point : points) {
    std::vector<const ScaleRun*> good;
    std::string failure;
    for (const ScaleRun& run : runs) {
      if (run.point.name() != point.name()) continue;
      if (run.failure.empty()) {
        good.push_back(&run);
      } else {
        failure = run.failure;
      }
    }
    ScaleRow row = row_of_runs(point, good);
    row.failure = failure;
    if (const auto found = about.predictions.find(point.name()); found != about.predictions.end()) {
      row.predicted = found->second;
    }
    row.hosts = std::ssize(about.launcher.placement(point.world));
    row.units = units_of(about, row);
    const double peak = about.peak.product_rate / about.peak.cores * row.units;
    if (row.measured() && peak > 0) row.flop_share = row.median() * flop / peak;
    if (row.flop_share > 1) {
      row.remarks.emplace_back("above the peak, which was measured while others used the machine");
    }
    rows.push_back(std::move(row));
  }
  for (ScaleRow& row : rows) {
    const ScaleRow* const baseline = row.measured() ? baseline_of(rows, row) : nullptr;
    if (baseline == nullptr) continue;
    row.efficiency = row.median() / row.units / (baseline->median() / baseline->units);
    row.baseline = baseline->point.text();
    name_noise(rows, baseline, row);
  }
  return rows;
}

}  // namespace zero
