// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/run_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/consecutive.h"
#include "collectives/mesh_shape.h"
#include "collectives/ranks_of_hosts.h"
#include "engine/graph_capture.h"
#include "engine/schedule.h"
#include "launch/config/train_config.h"

namespace zero {
namespace {

std::string why_none(const TrainConfig& config) {
  if (!config.engine.graphs) return "run.graphs is false";
  if (config.mesh.tensor > 1) return "collectives of the tensor group lie inside the passes";
  if (config.run.profile || !config.run.trace.empty()) return "every operation was timed";
  return "no pass came a second time";
}

constexpr int kRows = 16;  // beyond that, only their number is given

}  // namespace

std::string graphs_text(const CaptureCounts& captured, const TrainConfig& config) {
  if (captured.refused > 0) {
    return fmt::format("graphs: {} pass(es) captured, {} submitted kernel by kernel: {}",
                       captured.graphs, captured.refused, captured.refusal);
  }
  if (captured.graphs == 0) return fmt::format("graphs: none, {}", why_none(config));
  return fmt::format("graphs: {} passes captured, of {} kernels, fills and copies", captured.graphs,
                     captured.nodes);
}

nlohmann::ordered_json graphs_json(const CaptureCounts& captured, const TrainConfig& config) {
  return {{"passes", captured.graphs},
          {"pieces", captured.nodes},
          {"refused", captured.refused},
          {"text", graphs_text(captured, config)}};
}

void CommunicationTime::collective(const CollectiveRecord& /*record*/, Mark begin,
                                   Mark end) noexcept {
  try {
    running_.emplace_back(std::move(begin), std::move(end));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a time is lost, not the run
  }
}

double CommunicationTime::take() {
  double seconds = 0;
  for (; !running_.empty(); running_.pop_front()) {
    const std::optional<double> each =
        running_.front().second.seconds_since(running_.front().first);
    if (!each) break;
    seconds += *each;
  }
  return seconds;
}

ExposedUnits::ExposedUnits(std::vector<std::string> units, const Schedule& schedule)
    : places_(std::move(units)) {
  places_.emplace_back("the boundary");
  for (const ScheduleStep& step : schedule.steps) units_.push_back(step.use.unit.index);
  seconds_.assign(places_.size(), 0.0);
}

void ExposedUnits::add(std::span<const double> by_use, double total, double communication) {
  for (std::size_t i = 0; i < by_use.size(); ++i) {
    seconds_[static_cast<std::size_t>(units_[i])] += by_use[i];
    total -= by_use[i];
  }
  seconds_.back() += std::max(0.0, total);
  communication_ += communication;
  ++steps_;
}

double ExposedUnits::exposed() const {
  return std::accumulate(seconds_.begin(), seconds_.end(), 0.0);
}

double ExposedUnits::hidden_share() const {
  return communication_ > 0 ? std::max(0.0, 1 - exposed() / communication_) : 0;
}

std::string ExposedUnits::summary() const {
  std::string text;
  if (const double total = exposed(); total > 0) {
    const auto worst = std::max_element(seconds_.begin(), seconds_.end());
    text = fmt::format("exposed communication: {:.2f} ms a step, most of it at {}: {:.2f} ms",
                       1e3 * total / steps_,
                       places_[static_cast<std::size_t>(worst - seconds_.begin())],
                       1e3 * *worst / steps_);
  }
  if (communication_ <= 0) return text;
  return text + fmt::format("{}hidden: {:.0f} % of {:.2f} ms", text.empty() ? "" : "; ",
                            100 * hidden_share(), 1e3 * communication_ / steps_);
}

nlohmann::ordered_json ExposedUnits::json() const {
  const double steps = std::max(1, steps_);
  return {{"seconds", communication_ / steps},
          {"exposed_seconds", exposed() / steps},
          {"hidden_share", hidden_share()}};
}

MeshTable mesh_table(const MeshShape& shape, const std::vector<std::string>& hosts) {
  MeshTable table;
  if (shape.replicate == 1 && shape.tensor == 1) return table;
  table.text = fmt::format("mesh: replicate {} x shard {} x tensor {}\n", shape.replicate,
                           shape.shard, shape.tensor);
  const int rows = shape.data_ranks();
  int crossing = 0;
  for (int row = 0; row < rows; ++row) {
    const int first = row * shape.tensor;
    const RanksOfHosts group({hosts.begin() + first, hosts.begin() + first + shape.tensor});
    const std::vector<std::string>& on = group.names();
    if (on.size() > 1 && crossing++ == 0) {
      table.warnings.push_back(fmt::format(
          "the tensor group of ranks {} to {} is on {} hosts ({}): every layer waits for the link "
          "between them; make mesh.tensor divide the ranks of a host",
          first, first + shape.tensor - 1, on.size(), fmt::join(on, ", ")));
    }
    if (row >= kRows) continue;
    const std::vector<int> ranks = consecutive(first, shape.tensor);
    table.text +=
        fmt::format("  replicate {:>3}  shard {:>4}  ranks {}  on {}\n", row / shape.shard,
                    row % shape.shard, fmt::join(ranks, " "), fmt::join(on, ", "));
  }
  if (rows > kRows) table.text += fmt::format("  and {} more tensor groups\n", rows - kRows);
  if (crossing > 1) {
    table.warnings.back() += fmt::format(" (and {} more groups)", crossing - 1);
  }
  table.text.pop_back();
  return table;
}

}  // namespace zero
