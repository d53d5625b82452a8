// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/scale/launcher.h"
#include "launch/scale/run_figures.h"
#include "launch/scale/sweep.h"

namespace zero {

class Console;

/// One run of a point.
struct ScaleRun {
  ScalePoint point{};
  int repeat = 1;  ///< from 1
  RunFigures figures{};
  std::string failure{};  ///< in one line; empty: there are figures
  double seconds = 0;     ///< that the run took, its start included
};

/// Runs the points of a sweep, each as a user would start it, in folders of their own below
/// `folder`: runs/POINT.REPEAT with ds.json, run.log, output.txt and result.json. A run whose
/// result is there, of the same configuration, command and program, is read; one that failed is
/// done again.
class SweepRunner {
 public:
  struct Options {
    std::string folder;   ///< exists, and is the same on all hosts
    std::string program;  ///< zero_train
    Launcher launcher{};
    int repeats = 3;
    double timeout = 600;             ///< seconds of a run
    std::function<bool()> stopped{};  ///< asked often: whether to end now
  };
  /// All must outlive this.
  SweepRunner(const Sweep& sweep, Options options, Console& console);

  /// The commands of every point, as lines of a shell.
  std::string commands_text(const std::vector<ScalePoint>& points) const;
  /// Measures the machine by a small run with run.profile. Throws zero::Error if that fails.
  MachinePeak peak();
  /// All points once, then again. Calls `after` with the runs so far behind each that was not there
  /// before. Ends early if stopped. A point that fails is not repeated.
  std::vector<ScaleRun> run(const std::vector<ScalePoint>& points,
                            const std::function<void(const std::vector<ScaleRun>&)>& after);

 private:
  /// A run as it is asked for.
  struct Request {
    std::string folder;
    nlohmann::ordered_json configuration;
    std::vector<Command> commands;
  };
  struct Outcome {
    bool stopped = false;
    std::string failure{};
    double seconds = 0;
  };

  Request request(const ScalePoint& point, int repeat) const;
  Request request(const std::string& name, int world, nlohmann::ordered_json configuration,
                  const std::vector<std::string>& overrides) const;
  nlohmann::ordered_json asked(const Request& request) const;
  /// The result that is there, if it is of this request and has figures. Says so if it is broken.
  bool read_result(const Request& request, ScaleRun& run) const;
  Outcome start(const Request& request, const std::string& text);
  bool measure(const Request& wanted, ScaleRun& run);
  std::string data_path(std::int64_t vocabulary, std::int64_t tokens) const;
  std::string data_file(std::int64_t vocabulary, std::int64_t tokens) const;
  /// How long the sweep takes yet, `seconds` into a run; empty before the first has ended.
  std::string left_text(double seconds) const;
  void say(const ScaleRun& run);

  const Sweep& sweep_;
  Options options_;
  Console& console_;
  std::string program_digest_;
  std::int64_t total_ = 0;
  std::int64_t done_ = 0;
  std::vector<double> durations_{};  // of the runs done here
};

}  // namespace zero
