// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <string>

#include "base/message_text.h"
#include "launch/checkpoints/checkpoint_tool.h"
#include "launch/process/command_line.h"
#include "launch/process/exit_status.h"
#include "launch/telemetry/output.h"

namespace {

namespace tool = zero::checkpoint_tool;
using tool::Answer;

struct Arguments {
  std::string path{};
  std::string other{};
  std::string dtype = "fp32";
  bool json = false;
  zero::KeepSteps keep{};
};

/// Prints an answer; its status.
int tell(const Answer& answer) {
  zero::print(zero::printable_text(answer.text));
  if (answer.verdict == Answer::Verdict::yes) return zero::exit_status::kOk;
  return answer.verdict == Answer::Verdict::no ? zero::exit_status::kNo
                                               : zero::exit_status::kTrouble;
}

/// The program's commands: how each takes its arguments, what it does.
class CheckpointCommands {
 public:
  explicit CheckpointCommands(CLI::App& app) : commands_(app) {
    add_lookers();
    add_export();
    add_prune();
  }
  int act() const { return commands_.act(); }

 private:
  template <typename Act>
  CLI::App& add(const char* name, const char* help, const Act& act) {
    return commands_.add(name, help, [act] { return tell(act()); });
  }
  void take_path(CLI::App& command) { command.add_option("PATH", given_.path)->required(); }
  void take_folder(CLI::App& command) { command.add_option("FOLDER", given_.path)->required(); }

  /// Commands that change nothing.
  void add_lookers() {
    CLI::App& list = add(
        "ls", "checkpoints of FOLDER: step, size, time; why one is not complete or readable", [&] {
          return tool::list(disk_, given_.path, given_.json ? tool::Form::json : tool::Form::text);
        });
    take_folder(list);
    list.add_flag("--json", given_.json, "as JSON");
    take_path(add("verify", "read every byte and check its sum; of a folder of checkpoints, all",
                  [&] { return tool::verify(disk_, given_.path); }));
    take_path(add("show", "the configuration and the tensors",
                  [&] { return tool::show(disk_, given_.path); }));
    CLI::App& compare = add("diff", "first element that differs, and the largest differences",
                            [&] { return tool::compare(disk_, given_.path, given_.other); });
    compare.add_option("A", given_.path)->required();
    compare.add_option("B", given_.other)->required();
  }

  void add_export() {
    CLI::App& command = add("export", "write the weights as a Hugging Face folder OUT", [&] {
      return tool::export_weights(disk_, given_.path, given_.other,
                                  zero::dtype_from_name(given_.dtype));
    });
    take_path(command);
    command.add_option("OUT", given_.other, "new or empty")->required();
    command.add_option("--dtype", given_.dtype, "of the weights")
        ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
        ->capture_default_str();
  }

  void add_prune() {
    CLI::App& command =
        add("prune", "remove complete checkpoints of FOLDER but the newest good ones",
            [&] { return tool::prune(disk_, given_.path, given_.keep); });
    take_folder(command);
    command.add_option("--keep-last", given_.keep.last, "newest that stay")
        ->required()
        ->check(CLI::Range(1, 1 << 30));
    command.add_option("--keep-every", given_.keep.every, "steps that this divides stay too")
        ->check([](const std::string& text) {
          const bool good = text.find_first_not_of("0123456789") == std::string::npos &&
                            text.find_first_not_of('0') != std::string::npos;
          return good ? "" : "found " + text + ", expected a whole number from 1";
        });
  }

  zero::Commands commands_;
  zero::files::FileSystem& disk_ = zero::files::disk();
  Arguments given_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Looks after checkpoints of zero_train. PATH is a checkpoint (FOLDER/step_00000500), or a "
      "folder of checkpoints, of which the newest complete one is meant.\n"
      "Status: 0; 1 if a checkpoint is damaged or two differ; 2 if the command could not be done, "
      "or a file not be read.",
      "zero_ckpt"};
  const CheckpointCommands commands(app);
  return zero::run_program(app, argc, argv, {.trouble = zero::exit_status::kTrouble},
                           [&] { return commands.act(); });
}
