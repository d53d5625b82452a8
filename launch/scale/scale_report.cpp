// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/scale/scale_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <span>

#include "base/host.h"
#include "base/message_text.h"
#include "launch/data/new_file.h"
#include "launch/memory/machine_memory.h"
#include "launch/process/versions.h"
#include "launch/rendezvous/cores.h"

namespace zero {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

/// `git describe` of the tree around a program; empty where there is none.
std::string commit_of(const std::string& program) {
  const std::string folder = std::filesystem::path(program).parent_path().string();
  try {
    const Finished git = run_command({"git", "-C", folder.empty() ? "." : folder, "describe",
                                      "--always", "--dirty", "--abbrev=12"});
    return git.status == 0 ? printable_line(git.output.substr(0, git.output.find('\n')), 80) : "";
  } catch (const Error&) {  // no git
    return "";
  }
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

/// "| a | b |\n"
std::string table_line(std::vector<std::string> cells) {
  for (std::string& cell : cells) std::ranges::replace(cell, '|', '/');
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

// Columns, of those of ScaleReport::table().
constexpr std::size_t kMeasuredEnd = 10;
constexpr std::size_t kPredictedEnd = 16;

std::vector<std::string> cells_of(const ScaleRow& row) {
  std::vector<std::string> cells{row.point.text()};
  if (row.measured()) {
    const RunFigures& found = row.figures;
    const double communication = found.communication_seconds;
    cells.insert(cells.end(),
                 {fmt::format("{:.0f}", row.median()),
                  row.tokens_per_second.size() > 1 ? percent(row.spread) : "",
                  row.efficiency > 0 ? fmt::format("{:.2f}", row.efficiency) : "",
                  fmt::format("{:.1f}", 1e3 * found.step_seconds),
                  fmt::format("{:.1f}", 1e3 * found.exposed_seconds),
                  communication > 0 ? percent(found.hidden_seconds() / communication) : "",
                  fmt::format("{:.1f}", static_cast<double>(found.used_bytes) / kMebibyte),
                  fmt::format("{:.1f}", static_cast<double>(found.planned_bytes) / kMebibyte),
                  row.flop_share > 0 ? percent(row.flop_share) : ""});
  }
  cells.resize(kMeasuredEnd);
  if (row.predicted) {
    const Simulation& predicted = *row.predicted;
    const std::optional<double> error = row.error();
    cells.insert(cells.end(),
                 {fmt::format("{:.0f}", predicted.tokens_per_second()),
                  fmt::format("{:.1f}", 1e3 * predicted.step_seconds),
                  fmt::format("{:.1f}", 1e3 * predicted.slowest().exposed_seconds),
                  fmt::format("{:.1f}", static_cast<double>(predicted.bytes) / kMebibyte),
                  predicted.limited_by, error ? fmt::format("{:+.1f} %", 100 * *error) : ""});
  }
  cells.resize(kPredictedEnd);
  std::string remarks = fmt::format("{}", fmt::join(row.remarks, "; "));
  if (!row.failure.empty()) {
    remarks = "FAILED: " + row.failure + (remarks.empty() ? "" : "; " + remarks);
  } else if (!row.measured()) {
    remarks = row.predicted ? "not measured" : "not measured yet";
  }
  cells.push_back(remarks);
  return cells;
}

nlohmann::ordered_json row_json(const ScaleRow& row) {
  nlohmann::ordered_json json{{"point", row.point.name()},
                              {"scaling", name_of(row.point.scaling)},
                              {"stage", row.point.stage},
                              {"mesh", row.point.mesh.text()},
                              {"world", row.point.world},
                              {"hosts", row.hosts},
                              {"tokens_per_second", row.tokens_per_second},
                              {"median", nullptr},
                              {"spread", row.spread},
                              {"compute_units", row.units},
                              {"efficiency", nullptr},
                              {"efficiency_of", row.baseline},
                              {"flop_share", nullptr},
                              {"predicted", nullptr},
                              {"remarks", row.remarks},
                              {"failure", nullptr}};
  if (row.measured()) json["median"] = row.figures.json();
  if (row.efficiency > 0) json["efficiency"] = row.efficiency;
  if (row.flop_share > 0) json["flop_share"] = row.flop_share;
  if (!row.failure.empty()) json["failure"] = row.failure;
  if (row.predicted) {
    const SimulatedRank& rank = row.predicted->slowest();
    json["predicted"] = {{"tokens_per_second", row.predicted->tokens_per_second()},
                         {"step_seconds", row.predicted->step_seconds},
                         {"communication_seconds", rank.collective_seconds()},
                         {"exposed_communication_seconds", rank.exposed_seconds},
                         {"bytes", row.predicted->bytes},
                         {"flop_share", row.predicted->flop_share},
                         {"limited_by", row.predicted->limited_by},
                         {"error", nullptr}};
    if (const auto error = row.error()) json["predicted"]["error"] = *error;
  }
  return json;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> facts_of_machine(const Sweep& sweep,
                                                                  const std::string& program) {
  std::vector<std::pair<std::string, std::string>> facts{
      {"date", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))},
      {"host", host_name()},
      {"processor", fmt::format("{}, {} cores in use", processor_name(), usable_cores())}};
  if (double load = 0; ::getloadavg(&load, 1) == 1) {
    facts.emplace_back("load", fmt::format("{:.1f} processes running in the minute before", load));
  }
  for (const GpuMemory& gpu : nvidia_memory().gpus) {
    facts.emplace_back(gpu.label(), gpu.name);
  }
  std::string versions;
  for (const char c : libraries_text(sweep.device)) {
    versions += c == '\n' ? "; " : std::string(1, c);
  }
  facts.emplace_back("versions", versions);
  const std::string commit = commit_of(program);
  facts.emplace_back("commit", commit.empty() ? "not in a source tree" : commit);
  return facts;
}

bool ScaleReport::failed() const {
  return std::ranges::any_of(rows, [](const ScaleRow& row) { return !row.failure.empty(); });
}

nlohmann::ordered_json ScaleReport::json() const {
  nlohmann::ordered_json facts;
  for (const auto& [name, value] : machine) facts[name] = value;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ScaleRow& row : rows) list.push_back(row_json(row));
  return {{"machine", facts},
          {"launcher", name_of(launcher.kind)},
          {"hosts", hosts_text(launcher.hosts)},
          {"model", sweep.model_text},
          {"sequence", sweep.sequence},
          {"batch", sweep.batch},
          {"dtype", name_of(sweep.dtype)},
          {"device", sweep.device == DeviceKind::cuda ? "cuda" : "cpu"},
          {"overrides", sweep.overrides},
          {"repeats", repeats},
          {"steps", sweep.steps},
          {"peak_flop_per_second", peak.product_rate / peak.cores},
          {"cores_of_a_host", peak.cores},
          {"complete", complete},
          {"left_out", left_out},
          {"rows", list}};
}

std::vector<std::vector<std::string>> ScaleReport::table() const {
  std::vector<std::vector<std::string>> all{
      {"point", "tokens/s", "spread", "of ideal", "step ms", "exposed ms", "hidden", "MiB a rank",
       "planned", "of peak", "predicted tokens/s", "predicted step ms", "predicted exposed ms",
       "predicted MiB a rank", "limited by", "error", "remarks"}};
  for (const ScaleRow& row : rows) all.push_back(cells_of(row));
  for (std::size_t column = kPredictedEnd; --column > 0;) {
    const auto filled = [&](const auto& row) { return !row[column].empty(); };
    if (std::any_of(all.begin() + 1, all.end(), filled)) continue;
    for (auto& row : all) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
  return all;
}

std::string ScaleReport::markdown() const {
  std::string text = fmt::format(
      "# Scaling of {}\n\n{} in {}, sequences of {} tokens; strong: {} a step, weak: {} a rank; "
      "--launcher {}{}\n\n",
      sweep.model_text, sweep.device == DeviceKind::cuda ? "GPUs" : "CPUs", name_of(sweep.dtype),
      sweep.sequence, sweep.batch, sweep.batch, name_of(launcher.kind),
      launcher.hosts.empty() ? "" : ", hosts " + hosts_text(launcher.hosts));
  if (!complete) text += "**Not complete: the sweep was stopped.**\n\n";
  for (const auto& [name, value] : machine) text += fmt::format("- {}: {}\n", name, value);
  text += "\n";
  const std::vector<std::vector<std::string>> cells = table();
  text += table_line(cells.front()) + "|---|";
  for (std::size_t i = 2; i < cells.front().size(); ++i) text += "---:|";
  text += "---|\n";
  for (const auto& row : std::span(cells).subspan(1)) text += table_line(row);
  text += fmt::format(
      "\nMedians of {} of {} behind a warm-up of {}, taken in turns. Spread: largest "
      "less least run, of the median. Of ideal: tokens/s for each {} over those of one process, or "
      "of the smallest world measured. Hidden: of the first rank's communication, what compute did "
      "not wait for. Of peak: FLOP of the model over the product rate measured here.\n",
      counted(repeats, "run"), counted(sweep.steps, "step"), sweep.warmup,
      sweep.device == DeviceKind::cuda ? "GPU" : "core in use");
  if (const std::string errors = errors_text(); !errors.empty()) text += "\n" + errors + "\n";
  for (const std::string& line : left_out) text += fmt::format("\n- {}", line);
  if (!left_out.empty()) text += "\n";
  return text + fmt::format("\nRuns were started so:\n\n```sh\n{}```\n", commands);
}

std::string ScaleReport::errors_text() const {
  double sum = 0;
  int count = 0;
  const ScaleRow* worst = nullptr;
  for (const ScaleRow& row : rows) {
    const std::optional<double> error = row.error();
    if (!error) continue;
    ++count;
    sum += std::abs(*error);
    if (worst == nullptr || std::abs(*error) > std::abs(*worst->error())) worst = &row;
  }
  if (worst == nullptr) return "";
  return fmt::format(
      "Predicted: {}; the step is off by {:.1f} % on average, by {:+.1f} % at worst ({}).",
      counted(count, "point"), 100 * sum / count, 100 * *worst->error(), worst->point.text());
}

void write_report(const ScaleReport& report, const std::string& folder) {
  write_whole_file(
      folder + "/report.json",
      report.json().dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  write_whole_file(folder + "/report.md", printable_text(report.markdown()));
  write_whole_file(folder + "/report.html", report.html());
}

}  // namespace zero
