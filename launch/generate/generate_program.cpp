// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/generate_program.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <optional>
#include <utility>

#include "base/error.h"
#include "collectives/agreement.h"
#include "collectives/backends.h"
#include "files/disk_calls.h"
#include "launch/data/new_file.h"
#include "launch/flight/flight_folder.h"
#include "launch/generate/answer_plan.h"
#include "launch/generate/answer_session.h"
#include "launch/generate/generate_flags.h"
#include "launch/plan/model_choice.h"
#include "launch/process/exit_status.h"
#include "launch/process/process.h"
#include "launch/process/temporary.h"
#include "launch/rendezvous/same_build.h"
#include "launch/telemetry/output.h"
#include "launch/watch/process_faults.h"
#include "weights/hf/config.h"
#include "weights/model_files.h"

namespace zero {
namespace {

bool is_interactive(const GenerateFlags& flags) {
  return !flags.plan && !flags.has_prompts() && ::isatty(STDIN_FILENO) != 0;
}

/// All of standard input, without the line's end that echo puts there.
std::string standard_input() {
  const files::DiskCall counted;  // who writes it may take any time
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

/// Refuses flags about texts or chats if no prompt is one.
void check_texts(const GenerateFlags& flags, const std::vector<Prompt>& prompts) {
  const auto is_text = [](const Prompt& prompt) {
    return std::holds_alternative<std::string>(prompt.content);
  };
  const auto is_chat = [&](const Prompt& prompt) {
    return std::holds_alternative<Prompt::Messages>(prompt.content) ||
           (flags.chat && is_text(prompt) && !prompt.settings.special);
  };
  if (prompts.empty()) return;
  ZERO_CHECK(flags.template_values.is_null() || std::ranges::any_of(prompts, is_chat),
             "--chat-template-kwargs is for a chat template, and no prompt is messages; leave it "
             "out, or give --chat");
  if (std::ranges::any_of(prompts, is_text)) return;
  for (const auto& [given, flag] :
       {std::pair(flags.chat, "--chat"), std::pair(flags.settings.special, "--special")}) {
    ZERO_CHECK(!given,
               "{} is for texts, and all prompts are ids or messages; leave it out, or give a text "
               "(--prompt, or \"prompt\" in a file)",
               flag);
  }
}

std::vector<Prompt> given_prompts(const GenerateFlags& flags, AnswerSession& session) {
  const PromptSettings usual = session.usual_settings();
  const auto refuse = [&](std::int64_t number, const std::string& message) {
    session.refuse(number, message);
  };
  if (!flags.file.empty()) return read_prompts(flags.file, usual, refuse);
  std::vector<Prompt> all;
  std::int64_t number = 0;
  const auto add = [&](std::string where, auto content) {
    all.push_back({.where = std::move(where),
                   .number = number,
                   .content = std::move(content),
                   .settings = usual});
  };
  if (flags.prompts.empty() && flags.prompt_ids.empty()) {
    ++number;
    add("standard input", standard_input());
  }
  for (const std::string& text : flags.prompts) {
    ++number;
    add(fmt::format("--prompt {}", number), text);
  }
  for (const std::string& ids : flags.prompt_ids) {
    ++number;
    const std::string where = fmt::format("--prompt-ids {}", number - std::ssize(flags.prompts));
    try {
      add(where, parse_ids(ids, where));
    } catch (const Error& error) {
      refuse(number, error.what());
    }
  }
  return all;
}

/// A prompt a line, until the input ends.
void run_interactive(const GenerateFlags& flags, AnswerSession& session,
                     const Interrupts& interrupts) {
  ZERO_CHECK(flags.template_values.is_null() || flags.chat,
             "--chat-template-kwargs is for a chat template; leave it out, or give --chat");
  const PromptSettings usual = session.usual_settings();
  session.encoder().limit_context(flags.context.value_or(GenerateFlags::kUsualContext));
  session.open_for_terminal();
  std::int64_t number = 0;
  const auto show = [&](const char* text) {
    if (!flags.json) print_error("{}", text);
  };
  while (interrupts.signal() == 0) {
    show("> ");
    std::string line;
    if (!std::getline(std::cin, line)) return show("\n");
    if (line.empty()) continue;
    ++number;
    session.answer(session.accept({{.where = fmt::format("prompt {}", number),
                                    .number = number,
                                    .content = line,
                                    .settings = usual}}));
  }
}

WaitLimits wait_limits(const GenerateFlags& flags) {
  const auto seconds = std::chrono::duration<double>(flags.collective_warning);
  return {.warning = std::chrono::duration_cast<std::chrono::milliseconds>(seconds),
          .warn = [](const std::string& line) { say_line("warning: " + line); }};
}

/// The first rank's prompts, answered by all. `faults`: null, if this rank is alone.
int answer_as(Communicator& world, const GenerateFlags& flags, Interrupts& interrupts,
              RunFaults* faults = nullptr) {
  AnswerSession session(flags, interrupts, world, faults);
  AnswerRanks& ranks = session.ranks();
  std::vector<AcceptedPrompt> prompts;
  session.phase("prompts");
  // Who writes standard input may take any time.
  if (!flags.has_prompts()) world.set_wait_limits({.warning = {}, .timeout = {}});
  if (ranks.first()) {
    if (is_interactive(flags)) {
      ZERO_CHECK(ranks.count() == 1, "{} ranks answer --prompt, --file or a pipe; found a terminal",
                 ranks.count());
      run_interactive(flags, session, interrupts);
      return session.finish();
    }
    std::vector<Prompt> given = given_prompts(flags, session);
    check_texts(flags, given);
    prompts = session.accept(std::move(given));
  }
  if (ranks.count() > 1) {
    prompts = decoded_prompts(ranks.share(encoded(prompts)));
    world.set_wait_limits(wait_limits(flags));
  }
  if (!prompts.empty()) {
    session.open(prompts);
    session.answer(prompts);
  }
  return session.finish();
}

/// --model of a plan as a folder: that of a config.json; or, for such a file under another name and
/// a model that has no files, one of its own while it lives.
class PlannedFolder {
 public:
  explicit PlannedFolder(const std::string& model) : path_(model) {
    if (path_.filename() == kConfig && !std::filesystem::is_directory(path_)) {
      path_ = path_.has_parent_path() ? path_.parent_path() : ".";
    }
    if (std::filesystem::exists(path_) && path_.extension() != ".json") return;
    const std::string text = text_of(model);
    path_ = written_ = make_temporary_folder("zero_plan");
    write_whole_file(path_ / kConfig, text);
  }
  ~PlannedFolder() {
    std::error_code ignored;
    if (!written_.empty()) std::filesystem::remove_all(written_, ignored);
  }
  PlannedFolder(const PlannedFolder&) = delete;
  PlannedFolder& operator=(const PlannedFolder&) = delete;
  std::string path() const { return path_.string(); }

 private:
  static std::string text_of(const std::string& model) {
    if (!std::filesystem::exists(model)) return hf_config_text(model_of(model));
    const std::string text = read_model_text(model);
    parse_hf_model(model, text);  // names the file where it is none
    return text;
  }

  static constexpr const char* kConfig = "config.json";
  std::filesystem::path path_;
  std::filesystem::path written_;
};

/// Prints what answering would take of memory, for ranks that need not be there. Returns the exit
/// status: 1 if it does not fit.
int print_plan(GenerateFlags flags) {
  if (flags.start.rank != 0) return 0;
  const PlannedFolder folder(flags.model);
  flags.model = folder.path();
  const int world = flags.start.world;
  Interrupts interrupts;
  const std::unique_ptr<Communicator> alone = local::single();
  AnswerSession session(flags, interrupts, *alone);
  std::vector<AcceptedPrompt> prompts;
  if (flags.has_prompts()) {
    prompts = session.accept(given_prompts(flags, session));
    ZERO_CHECK(!prompts.empty(), "--plan: no prompt can be answered");
  } else {
    session.encoder().limit_context(flags.context.value_or(GenerateFlags::kUsualContext));
  }
  const AnswerPlan plan = session.plan(prompts, world);
  print(plan_text(plan, flags));
  return plan.shortage.empty() ? session.finish() : exit_status::kNo;
}

/// answer_as(), once the ranks have met. A failure that all ranks know is reported once.
int answer_in(Communicator& world, const GenerateFlags& flags, Interrupts& interrupts,
              ProcessFaults& process) {
  if (world.size() == 1) return answer_as(world, flags, interrupts);
  ::signal(SIGPIPE, SIG_IGN);  // OutputClosed tells of it
  std::optional<RunFaults> faults;
  std::optional<ProcessFaults::Joined> joined;
  try {
    world.set_wait_limits(wait_limits(flags));
    require_same_build(world);
    check_cpu_ranks_can_talk(world);
    require_agreement(world, *cpu::open(),
                      {{"--no-watchdog", flags.watchdog ? "left out" : "given"}});
    const FlightFolder folder{
        .path = flags.flight_folder, .option = "--flight-folder", .without = ""};
    std::optional<ProcessFaults::Starting> starting(std::in_place, process, folder.path,
                                                    world.rank());
    FlightFile file = create_flight_file(folder, world, *cpu::open());
    std::optional<WatchdogOptions> watchdog;
    if (flags.watchdog) watchdog = process.watchdog(flags.hang_timeout);
    faults.emplace(world, std::move(file), std::move(watchdog));
    joined.emplace(process, *faults);
    starting.reset();
    if (!faults->warning().empty() && world.local_rank() == 0) {
      say_line("warning: " + faults->warning());
    }
    faults->begin("world");
    const int status = answer_as(world, flags, interrupts, &*faults);
    faults->end_well();
    return status;
  } catch (const AgreedError& error) {
    if (faults) faults->failed_alike(error.what());
    process.told();
    if (world.rank() == 0) say_line(error.what());
    return exit_status::kFault;
  } catch (const OutputClosed&) {  // the first rank ends as cat does
    process.end_by(SIGPIPE, [] {});
    ::signal(SIGPIPE, SIG_DFL);
    ::raise(SIGPIPE);
    ::_exit(exit_status::after_signal(SIGPIPE));  // where it is blocked
  } catch (const std::exception& error) {
    end_job("zero_generate", process.failing(faults ? &*faults : nullptr, error), world.rank(),
            world.size());
  }
}

}  // namespace

int generate(const GenerateFlags& flags, int* argc, char*** argv) {
  ::signal(SIGPIPE, SIG_DFL);  // as cat: who reads the answers has seen enough
  PromptSettings given = flags.settings;
  flags.sampling.apply_to(given.sampling);
  validate(given, "command line");
  ZERO_CHECK(!flags.context || is_interactive(flags) || (flags.plan && !flags.has_prompts()),
             "--context {} bounds prompts that are typed at a terminal, and none is; leave it out: "
             "the cache is as large as the longest prompt with its --max-tokens needs, or as "
             "--cache-tokens and --requests say",
             *flags.context);
  ZERO_CHECK(flags.flight_folder.empty() || flags.start.world > 1,
             "--flight-folder {}: flight files are of several ranks, which others wait for, and "
             "there is one; leave it out",
             flags.flight_folder);
  if (flags.int8_threshold && flags.start.rank == 0) {
    say_line(fmt::format("--llm-int8-threshold: {}", kNoThreshold));
  }
  if (flags.save_quantized.empty()) {
    const std::string note = device_note(flags, flags.start.world);
    if (!note.empty()) print_error("warning: {}\n", note);
  }
  if (flags.plan) return print_plan(flags);
  if (!flags.compare.empty()) {
    ZERO_CHECK(flags.start.world == 1, "--compare is measured by one rank; found {}",
               flags.start.world);
    return compare_weights(flags);
  }
  if (!flags.save_quantized.empty()) {
    ZERO_CHECK(flags.start.world == 1, "--save-quantized: one process writes; found {} ranks",
               flags.start.world);
    return save_quantized(flags, files::disk());
  }
  ProcessFaults process("zero_generate", flags.start.rank);
  Interrupts interrupts(&process);
  check_cpu_ranks_can_talk(flags.start);
  return run_ranks(
      flags.start, BetweenHosts::mpi, argc, argv,
      [&](Communicator& world) { return answer_in(world, flags, interrupts, process); }, say_line);
}

}  // namespace zero
