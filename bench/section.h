// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/report.h"
#include "collectives/communicator.h"

namespace CLI {
class App;
}

namespace zero::bench {

/// Memory bandwidth of this machine: median GB/s of bytes that the program reads and writes (not
/// counting lines that caches fetch before a write).
struct MemoryRates {
  double copy = 0;   ///< memcpy: one read, one write
  double triad = 0;  ///< a = b + s * c: two reads, one write
  double read = 0;

  /// The limit for a kernel that mixes reads and writes.
  double best() const { return std::max({copy, triad, read}); }
};

/// One run of zero_bench on one rank of its world, passed to every section. Collective calls are
/// marked.
class Context {
 public:
  /// `communicator` and `report` must outlive the context.
  Context(Communicator& communicator, int threads, Report& report)
      : communicator_(communicator), threads_(threads), report_(report) {}

  Communicator& communicator() { return communicator_; }
  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  /// Threads of a rank that measures alone.
  int threads() const { return threads_; }
  /// This rank's report; only the first rank's is printed and written.
  Report& report() { return report_; }

  /// The first rank runs `body` with the whole machine to itself: the other ranks sleep.
  /// Collective, with no other collective in flight.
  void alone(const std::function<void()>& body);
  /// Memory bandwidth with threads() threads, measured on the first call by one rank alone; the
  /// same on all ranks. Collective.
  const MemoryRates& memory();

 private:
  Communicator& communicator_;
  int threads_;
  Report& report_;
  std::optional<MemoryRates> memory_{};
  int turns_ = 0;  // calls of alone()
};

/// One benchmark of zero_bench: `zero_bench NAME [options]`. A section lives in one file, which
/// ends with its factory below; all_sections() lists the factories.
class Section {
 public:
  virtual ~Section() = default;
  Section() = default;
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

  virtual std::string name() const = 0;
  /// A line for --help.
  virtual std::string summary() const = 0;
  /// Adds the section's own options; their names must not clash with another section's.
  virtual void add_options(CLI::App& command);
  /// Measures, and adds rows whose section is name(). Every rank of the world makes the same call.
  virtual void run(Context& context) = 0;
};

std::unique_ptr<Section> limits_section();
std::unique_ptr<Section> ops_section();
std::unique_ptr<Section> collectives_section();
std::unique_ptr<Section> optimizer_section();
std::unique_ptr<Section> overlap_section();
std::unique_ptr<Section> chunks_section();
std::unique_ptr<Section> faults_section();
std::unique_ptr<Section> train_section();
std::unique_ptr<Section> memory_section();
std::unique_ptr<Section> inference_section();
std::unique_ptr<Section> serving_section();
std::unique_ptr<Section> gpu_section();
std::unique_ptr<Section> checkpoint_section();
std::unique_ptr<Section> tiers_section();
std::unique_ptr<Section> compare_section();

/// Every section, in the order in which they run.
std::vector<std::unique_ptr<Section>> all_sections();

}  // namespace zero::bench
