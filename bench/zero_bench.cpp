// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <set>
#include <string>

#include "base/message_text.h"
#include "bench/product_probe.h"
#include "bench/report.h"
#include "bench/section.h"
#include "collectives/backends.h"
#include "launch/process/command_line.h"
#include "launch/process/cpu_limit.h"
#include "launch/process/process.h"
#include "launch/rendezvous/cores.h"
#include "launch/rendezvous/start.h"
#include "launch/telemetry/output.h"

namespace {

using namespace zero;         // NOLINT: a program
using namespace zero::bench;  // NOLINT

using Sections = std::vector<std::unique_ptr<Section>>;

struct Options {
  int threads = 0;
  std::string json;
  std::set<std::string> sections;
};

void add_flags(CLI::App& app, const Sections& sections, Options& options) {
  app.require_subcommand(1, 0);
  for (const auto& section : sections) {
    CLI::App* command = app.add_subcommand(section->name(), section->summary());
    command->fallthrough();
    command->callback([&options, name = section->name()] { options.sections.insert(name); });
    section->add_options(*command);
  }
  app.add_option("--threads", options.threads,
                 "threads of a rank that measures alone (default: the cores it may use)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--json", options.json, "also write the rows to this file");
}

void run(Communicator& communicator, const Sections& sections, const Options& options) {
  const bool writes = communicator.rank() == 0 && !options.json.empty();
  Report report = communicator.rank() == 0
                      ? Report([&](const std::string& lines, const Report& all) {
                          print(printable_text(lines));
                          if (writes) write_file(options.json, all.json());
                        })
                      : Report();
  if (writes) write_file(options.json, report.json());  // fails before the work, not after it
  Context context(communicator, options.threads, report);
  for (const auto& section : sections) {
    if (options.sections.contains(section->name())) section->run(context);
  }
}

}  // namespace

int main(int argc, char** argv) {
  report_large_files();
  CLI::App app{"Measures this machine and this library; every rate stands beside a limit.",
               "zero_bench"};
  int rank = 0;
  int world = 1;
  try {
    const Sections sections = all_sections();
    Options options;
    app.footer(kCpuLimitHelp);
    add_flags(app, sections, options);
    if (const auto asked = parse_command_line(app, argc, argv)) {
      print(*asked);
      return 0;
    }
    if (options.threads == 0) options.threads = usable_cores();
    limit_cpu(process_environment());
    limit_onednn(process_environment());
    if (!mpi::available()) {
      local::run(1, [&](Communicator& communicator) { run(communicator, sections, options); });
      return 0;
    }
    const auto communicator = mpi::world(&argc, &argv);
    rank = communicator->rank();
    world = communicator->size();
    run(*communicator, sections, options);
    return 0;
  } catch (const CLI::ParseError& error) {
    print_to_stderr(
        fmt::format("zero_bench: {}; see zero_bench --help\n", parse_failure(app, error)));
  } catch (const std::exception& error) {
    if (world > 1) end_job("zero_bench", error.what(), rank, world);
    print_to_stderr(fmt::format("zero_bench: {}\n", error.what()));
  }
  return 1;
}
