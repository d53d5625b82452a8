// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/plan/machine.h"
#include "launch/scale/sweep_runner.h"
#include "launch/simulate/simulation.h"

namespace zero {

/// What a simulation says of each point, by ScalePoint::name().
using Predictions = std::map<std::string, Simulation>;

/// The cluster file `path` of --simulate, on which every point has its place: that at which
/// `launcher` starts its ranks, unless nothing is run (no `repeats`) and no hosts are named. Throws
/// zero::Error.
Machine cluster_of_sweep(const std::string& path, const Sweep& sweep,
                         const std::vector<ScalePoint>& points, const Launcher& launcher,
                         int repeats);

/// Simulates each point on `machine`, which must have a device for each rank; a world fills one
/// host before the next. Throws zero::Error, as simulate() does.
Predictions predict(const Sweep& sweep, const std::vector<ScalePoint>& points,
                    const Machine& machine);

/// A point of a sweep with all its runs: medians, and the spread of the repeats.
struct ScaleRow {
  ScalePoint point{};
  std::int64_t hosts = 1;
  std::vector<double> tokens_per_second{};  ///< of the repeats; empty: none has succeeded
  RunFigures figures{};                     ///< each the median of the repeats
  double spread = 0;                        ///< (largest - least) / median of tokens_per_second
  double units = 0;                         ///< what computes: GPUs, or cores in use
  double efficiency = 0;                    ///< tokens/s a unit over the baseline's; 0: no baseline
  std::string baseline{};                   ///< that the efficiency is of
  double flop_share = 0;                    ///< of the peak of those units; 0: not known
  std::vector<std::string> remarks{};       ///< noise, results that differ
  std::string failure{};                    ///< of a run; empty: none has failed
  std::optional<Simulation> predicted{};

  bool measured() const { return !tokens_per_second.empty(); }
  double median() const { return figures.tokens_per_second; }
  std::pair<double, double> range() const;  ///< of tokens_per_second
  /// Of the prediction: its step over the measured one, less 1; nothing unless there are both.
  std::optional<double> error() const;
};

/// What was measured, and where.
struct ScaleReport {
  Sweep sweep{};
  Launcher launcher{};
  int repeats = 1;
  MachinePeak peak{};
  std::vector<std::pair<std::string, std::string>> machine{};  ///< facts, by name
  std::string commands{};                                      ///< as they were started
  std::vector<std::string> left_out{};
  Predictions predictions{};  ///< empty: none was asked for
  bool complete = true;       ///< no point is missing
  std::vector<ScaleRow> rows{};

  /// Whether a run has failed.
  bool failed() const;
  nlohmann::ordered_json json() const;
  /// The rows as texts, below a row of names; without columns that would be empty.
  std::vector<std::vector<std::string>> table() const;
  std::string markdown() const;
  /// One page that needs no network.
  std::string html() const;
  /// "predicted: 8 points, mean error 3.1 %, worst 7.9 % (strong, stage 3, 8 ranks)"; empty if no
  /// point was both measured and predicted.
  std::string errors_text() const;
};

/// The rows of points and their runs. Each names the noise that hides its effect: a spread above
/// the distance to ideal, or to the stage below.
std::vector<ScaleRow> scale_rows(const ScaleReport& about, const std::vector<ScalePoint>& points,
                                 const std::vector<ScaleRun>& runs);

/// Facts of this machine, its software, and the commit of a source tree around `program`.
std::vector<std::pair<std::string, std::string>> facts_of_machine(const Sweep& sweep,
                                                                  const std::string& program);

/// Writes report.json, report.md and report.html into a folder.
void write_report(const ScaleReport& report, const std::string& folder);

}  // namespace zero
