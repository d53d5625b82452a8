// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <set>
#include <string>

#include "bench/collectives.h"
#include "bench/kernels.h"
#include "bench/limits.h"
#include "bench/report.h"
#include "collectives/backends.h"

namespace {

using namespace zero;         // NOLINT: a program
using namespace zero::bench;  // NOLINT

struct Options {
  int threads = 0;
  std::string json;
  std::set<std::string> sections;
};

/// Cores that this process may run on.
int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

void parse(CLI::App& app, Options& options, int argc, char** argv) {
  app.require_subcommand(1, 0);
  const auto section = [&](const std::string& name, const std::string& what) {
    CLI::App* command = app.add_subcommand(name, what);
    command->fallthrough();
    command->callback([&options, name] { options.sections.insert(name); });
  };
  section("limits", "product rate of oneDNN, memory bandwidth, link between ranks");
  section("kernels", "conversions and tree reductions against the memory");
  section("optimizer", "fused updates against the memory");
  section("collectives", "every collective, small to large");
  app.add_option("--threads", options.threads,
                 "threads of the measuring rank (default: the cores it may use)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--json", options.json, "also write the rows to this file");
  app.parse(argc, argv);
  if (options.threads == 0) options.threads = usable_cores();
}

/// What one rank measures while the others wait: the whole machine is its own.
MemoryRates measure_alone(const Options& options, Report& report) {
  const auto wants = [&](const char* name) { return options.sections.contains(name); };
  if (wants("limits")) measure_products(options.threads, report);
  const MemoryRates memory = measure_memory(options.threads, report);
  if (wants("kernels")) measure_kernels(options.threads, memory, report);
  if (wants("optimizer")) measure_optimizers(options.threads, memory, report);
  return memory;
}

void run(Communicator& communicator, const Options& options) {
  Report report;
  const bool writes = communicator.rank() == 0 && !options.json.empty();
  if (writes) write_file(options.json, report.json());  // fails before the work, not after it
  MemoryRates memory;
  const auto device = cpu::open();
  if (communicator.rank() == 0) memory = measure_alone(options, report);
  communicator.broadcast(View::of(std::span(&memory.copy, 1)), 0, device->communication(),
                         {.unit = "memory rate"});
  device->communication().synchronize();
  if (options.sections.contains("limits")) {
    measure_collectives(communicator, link_cases(), memory, report);
  }
  if (options.sections.contains("collectives")) {
    measure_collectives(communicator, all_cases(), memory, report);
  }
  if (communicator.rank() != 0) return;
  fmt::print("{}", report.table());
  if (writes) write_file(options.json, report.json());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures this machine and this library; every rate stands beside a limit.",
               "zero_bench"};
  bool many = false;
  try {
    Options options;
    parse(app, options, argc, argv);
    if (!mpi::available()) {
      local::run(1, [&](Communicator& communicator) { run(communicator, options); });
      return 0;
    }
    const auto communicator = mpi::world(&argc, &argv);
    many = communicator->size() > 1;
    run(*communicator, options);
    return 0;
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "zero_bench: {}; see zero_bench --help\n", error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "zero_bench: {}\n", error.what());
  }
  if (many) mpi::abort(1);
  return 1;
}
