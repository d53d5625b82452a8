// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/flight/flight_trace.h"
#include "launch/process/command_line.h"
#include "launch/process/exit_status.h"
#include "launch/process/versions.h"
#include "launch/telemetry/output.h"
#include "launch/watch/doctor.h"

namespace {

void print_json(const nlohmann::ordered_json& json) {
  zero::print(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Tells by the flight files of a run's ranks (run.flight_folder; --flight-folder of "
      "zero_generate) which rank holds up the others, in which collective and unit, while the run "
      "hangs or after it has ended: "
      "docs/flight_files.md.\n"
      "Status: 0 if the run goes on, ended well or by SIGINT or SIGTERM, or no rank has begun, or "
      "DIR has checkpoints and no flight files, which such ends remove; 1 if a fault was found; 2 "
      "if the files cannot be read, or DIR has neither files nor checkpoints.",
      "zero_doctor"};
  app.set_version_flag("--version", [] { return zero::version_text(); });
  std::string folder;
  std::string trace;
  bool json = false;
  app.add_option("DIR", folder, "the folder of the flight files, or the one that \"flight\" is in")
      ->required();
  app.add_flag("--json", json, "print everything as one JSON document");
  app.add_option("--trace", trace,
                 "write what the files still hold to this file too, for Perfetto or "
                 "chrome://tracing");
  return zero::run_program(app, argc, argv, {.trouble = zero::exit_status::kTrouble}, [&] {
    zero::Examination found;
    try {
      found = zero::examine(folder);
    } catch (const zero::Error& error) {
      if (json) print_json({{"error", error.what()}});
      throw;
    }
    if (!trace.empty()) zero::write_flight_trace(zero::rings_of(found), trace);
    if (json) {
      print_json(zero::json_of(found));
    } else {
      zero::print(zero::printable_text(zero::text_of(found)));
    }
    return found.diagnosis.what == zero::Diagnosis::What::nothing ? zero::exit_status::kOk
                                                                  : zero::exit_status::kNo;
  });
}
