// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/limits.h"
#include "bench/report.h"
#include "collectives/communicator.h"

namespace CLI {
class App;
}

namespace zero::bench {

/// One run of zero_bench, on one rank of its world: what every section works with. Collective
/// calls are marked.
class Context {
 public:
  /// `communicator` and `report` must outlive it.
  Context(Communicator& communicator, int threads, Report& report)
      : communicator_(communicator), threads_(threads), report_(report) {}

  Communicator& communicator() { return communicator_; }
  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  /// Threads of a rank that measures alone.
  int threads() const { return threads_; }
  /// Of this rank; the first rank's is printed and written.
  Report& report() { return report_; }

  /// The first rank runs `body` while the others sleep: the whole machine is its own. Collective,
  /// with no other collective in flight.
  void alone(const std::function<void()>& body);
  /// The memory's rates with threads() threads, measured when they are first asked for, alone; the
  /// same on all ranks. Collective.
  const MemoryRates& memory();

 private:
  Communicator& communicator_;
  int threads_;
  Report& report_;
  std::optional<MemoryRates> memory_{};
  int turns_ = 0;  // of alone()
};

/// One thing that zero_bench measures: `zero_bench NAME [options]`. A section lives in one file,
/// which ends with its factory below; all_sections() lists the factories.
class Section {
 public:
  virtual ~Section() = default;
  Section() = default;
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

  virtual std::string name() const = 0;
  /// A line for --help.
  virtual std::string summary() const = 0;
  /// Options of its own; they must not be named as another section's.
  virtual void add_options(CLI::App& command);
  /// Measures and adds rows, whose section is name(). Every rank of the world calls it alike.
  virtual void run(Context& context) = 0;
};

std::unique_ptr<Section> limits_section();
std::unique_ptr<Section> ops_section();
std::unique_ptr<Section> collectives_section();
std::unique_ptr<Section> optimizer_section();
std::unique_ptr<Section> overlap_section();
std::unique_ptr<Section> chunks_section();
std::unique_ptr<Section> train_section();
std::unique_ptr<Section> gpu_section();
std::unique_ptr<Section> compare_section();

/// Every section, in the order in which they run.
std::vector<std::unique_ptr<Section>> all_sections();

}  // namespace zero::bench
