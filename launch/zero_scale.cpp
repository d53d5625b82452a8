// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file_text.h"
#include "base/host.h"
#include "base/message_text.h"
#include "base/random_hex.h"
#include "launch/plan/model_choice.h"
#include "launch/process/command_line.h"
#include "launch/process/quantity.h"
#include "launch/process/signals.h"
#include "launch/process/temporary.h"
#include "launch/process/versions.h"
#include "launch/rendezvous/job_secret.h"
#include "launch/rendezvous/launcher_variables.h"
#include "launch/rendezvous/start.h"
#include "launch/scale/preflight.h"
#include "launch/scale/scale_report.h"
#include "launch/telemetry/output.h"
#include "launch/train/run_lock.h"

namespace {

constexpr int kTrouble = 1;  // a run failed, or the sweep could not be done

struct Flags {
  zero::Sweep sweep{.model_text = "gpt2-124m"};
  std::vector<std::string> scalings{"strong", "weak"};
  std::vector<std::string> meshes{"shard"};
  std::string dtype = "bf16";
  std::string device = "cpu";
  bool no_baseline = false;

  std::string launcher = "local";
  std::string hosts{};
  std::string hostfile{};
  zero::Launcher start{};  // what options set of it

  std::string program{};
  std::string report{};
  std::string peak{};
  std::string simulate{};
  int repeats = 3;
  double timeout = 600;
  bool dry_run = false;
  bool check = false;
  bool rank_of_check = false;
};

void add_question(CLI::App& app, Flags& flags) {
  zero::Sweep& sweep = flags.sweep;
  const auto list = [&](const char* name, auto& values, const char* help) {
    return app.add_option(name, values, help)->delimiter(',')->capture_default_str();
  };
  const auto from_one = CLI::Range(std::int64_t{1}, zero::Sweep::kMost);
  app.add_option("--model", sweep.model_text,
                 "a published name, sizes (family=llama,layers=4,...) or a config.json, as "
                 "zero_plan takes it; no weights are needed")
      ->capture_default_str();
  app.add_option("--sequence", sweep.sequence,
                 "tokens of a sequence; default: the model's context, 1024 at most")
      ->check(from_one);
  app.add_option("--batch", sweep.batch,
                 "sequences of a step: of one process; strong scaling keeps them, and needs a "
                 "multiple of each world's data ranks; weak scaling gives every rank as many")
      ->check(from_one)
      ->capture_default_str();
  app.add_option("--micro", sweep.micro,
                 "most sequences of a rank at once; default: its whole share of a step")
      ->check(from_one);
  app.add_option("--dtype", flags.dtype, "that is computed in")
      ->check(CLI::IsMember({"bf16", "fp16", "fp32"}))
      ->capture_default_str();
  app.add_option("--device", flags.device, "cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  list("--scaling", flags.scalings, "of strong,weak")->check(CLI::IsMember({"strong", "weak"}));
  list("--worlds", sweep.worlds, "numbers of ranks")->check(CLI::Range(1, 1 << 20));
  list("--stages", sweep.stages, "of 0,1,2,3")->check(CLI::Range(0, 3));
  list("--meshes", flags.meshes, "of shard,tensor=N,replicate=N,replicate=N+tensor=N");
  app.add_flag("--no-baseline", flags.no_baseline,
               "measure no single process, which may lack the memory for the model: the smallest "
               "world is the baseline");
  app.add_option("--set", sweep.overrides, "key.path=value of zero_train's configuration")
      ->allow_extra_args(false);
  app.add_option("--steps", sweep.steps, "steps that a run measures")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--warmup", sweep.warmup, "steps before them")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
}

void add_start(CLI::App& app, Flags& flags) {
  app.add_option(
         "--launcher", flags.launcher,
         "what starts the ranks: mpirun, srun, torchrun, or local, as threads of one process")
      ->check(CLI::IsMember({"local", "mpirun", "srun", "torchrun"}))
      ->capture_default_str();
  CLI::Option* const hosts = app.add_option("--hosts", flags.hosts,
                                            "hosts and the ranks each takes, a:8,b:8; worlds fill "
                                            "one before the next; default: this host alone");
  app.add_option("--hostfile", flags.hostfile, "the same from a file: a slots=8, or a:8, a line")
      ->excludes(hosts);
  app.add_option("--agent", flags.start.agent,
                 "that runs a command on another host (ssh), for mpirun and torchrun; words are "
                 "split at spaces, as in \"ssh -p 2222\"");
  app.add_option("--torchrun", flags.start.torchrun,
                 "the program torchrun, the same on all hosts; default: found in PATH");
  app.add_option("--port", flags.start.port,
                 "at which torchrun's ranks of several hosts meet; default: 29500")
      ->check(CLI::Range(1, 65'534));
  app.add_option("--launcher-flag", flags.start.flags,
                 "one more word for the launcher, as --launcher-flag=--mca; may be given again")
      ->allow_extra_args(false);
  app.add_option("--program", flags.program, "zero_train; default: the one beside zero_scale");
  app.add_option(
      "--simulate", flags.simulate,
      "a cluster file (docs/simulator.md), with as many devices a host as --hosts has ranks: each "
      "point is predicted too, for the report; with --repeats 0 nothing is run");
  app.add_option("--repeats", flags.repeats, "runs of each point, in turns")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app.add_option("--timeout", flags.timeout, "seconds after which a run is ended")
      ->check(CLI::Range(1.0, 1e7))
      ->capture_default_str();
  app.add_option("--peak", flags.peak,
                 "FLOP/s of a GPU, or of a host's cores, as 989TFLOP/s; default: measured");
  app.add_option("--report", flags.report,
                 "folder for report.html, report.md, report.json and the runs, which all hosts "
                 "see; a sweep that was cut goes on in it");
  app.add_flag("--dry-run", flags.dry_run, "print the commands, and do nothing");
  app.add_flag("--check", flags.check,
               "check the hosts before the first run: versions, GPUs, ports, clocks, the folder of "
               "--report, each link; prints ok or WRONG");
  // What --check says to the ranks that it starts: a step of srun may have a shell in it.
  app.add_flag("--rank-of-check", flags.rank_of_check)->group("");
  app.set_version_flag("--version", [] { return zero::version_text(); });
}

zero::Sweep sweep_of(const Flags& flags) {
  zero::Sweep sweep = flags.sweep;
  sweep.model = zero::model_of(sweep.model_text);
  constexpr std::int64_t kUsualSequence = 1024;
  if (sweep.sequence == 0) sweep.sequence = std::min(sweep.model.context, kUsualSequence);
  sweep.scalings.clear();
  for (const std::string& each : flags.scalings) {
    sweep.scalings.push_back(each == "weak" ? zero::Scaling::weak : zero::Scaling::strong);
  }
  sweep.meshes.clear();
  for (const std::string& each : flags.meshes) {
    sweep.meshes.push_back(zero::SweepMesh::from(each));
  }
  sweep.baseline = !flags.no_baseline;
  sweep.dtype = zero::dtype_from_name(flags.dtype);
  sweep.device = flags.device == "cuda" ? zero::DeviceKind::cuda : zero::DeviceKind::cpu;
  return sweep;
}

/// Whether ranks are given a secret that the user has made.
bool has_secret() {
  return std::getenv("ZERO_JOB_SECRET") != nullptr ||
         std::getenv("ZERO_JOB_SECRET_FILE") != nullptr;
}

/// Makes the secret of the runs, which only this user may read, unless it is there.
void make_secret(const zero::Launcher& launcher) {
  const std::string& path = launcher.secret_file;
  if (path.empty() || std::filesystem::exists(path)) return;
  const std::string made = path + ".partial";
  const zero::Descriptor file(
      ::open(made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  const std::string secret = zero::random_hex(64);
  const bool whole = file.get() >= 0 && ::fchmod(file.get(), 0600) == 0 &&
                     ::write(file.get(), secret.data(), secret.size()) == std::ssize(secret) &&
                     ::rename(made.c_str(), path.c_str()) == 0;
  ZERO_CHECK(whole, "--report: cannot write {}, the secret by which ranks meet: {}; {}", path,
             std::strerror(errno), zero::kMakeJobSecret);
}

zero::Launcher launcher_of(const Flags& flags) {
  zero::Launcher launcher = flags.start;
  launcher.kind = zero::launcher_kind(flags.launcher);
  launcher.variables = zero::variables_to_forward();
  launcher.as_root = ::geteuid() == 0;
  launcher.in_step = zero::in_step_of_srun(zero::process_environment());
  launcher.here = zero::host_name();
  launcher.check();
  if (!flags.hosts.empty()) launcher.hosts = zero::hosts_of_list(flags.hosts, "--hosts");
  if (!flags.hostfile.empty()) launcher.hosts = zero::hosts_of_file(flags.hostfile);
  if (launcher.needs_secret() && !has_secret() && !flags.report.empty()) {
    launcher.secret_file = std::filesystem::absolute(flags.report).string() + "/.job_secret";
  }
  return launcher;
}

std::string program_of(const Flags& flags) {
  namespace fs = std::filesystem;
  const fs::path own = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path program = flags.program.empty() ? own / "zero_train" : fs::path(flags.program);
  ZERO_CHECK(fs::is_regular_file(program), "--program: found no file {}; build zero_train first",
             program.string());
  return fs::absolute(program).string();
}

/// Which signal asks for an end; 0: none.
std::atomic<int> ending{0};

zero::SignalWatcher::AfterSignal note_end(int signal) {
  if (signal != SIGUSR1) ending = signal;
  return zero::SignalWatcher::AfterSignal::go_on;
}

/// Measures what is left of the sweep, and writes its report behind each run.
int measure(const Flags& flags, const zero::SweepRunner::Options& options,
            const std::vector<zero::ScalePoint>& points, zero::ScaleReport& report,
            zero::Console& console) {
  zero::SweepRunner runner(report.sweep, options, console);
  report.commands = runner.commands_text(points);
  report.machine = zero::facts_of_machine(report.sweep, options.program);
  if (flags.repeats > 0) report.peak = runner.peak();
  if (!flags.peak.empty()) report.peak.product_rate = zero::compute_rate(flags.peak, "--peak");
  const auto keep = [&](const std::vector<zero::ScaleRun>& runs) {
    report.rows = zero::scale_rows(report, points, runs);
    zero::write_report(report, options.folder);
  };
  report.complete = false;
  std::vector<zero::ScaleRun> runs;
  if (ending == 0) runs = runner.run(points, keep);
  report.complete = ending == 0;
  keep(runs);
  console.end_progress();
  zero::print(zero::printable_text(report.markdown()));
  zero::print(fmt::format("\n{0}/report.html, {0}/report.md, {0}/report.json\n", options.folder));
  if (ending != 0) {
    zero::print_error("zero_scale: ended by signal {}; what is measured stays in {}\n",
                      ending.load(), options.folder);
    return 128 + ending;
  }
  return report.failed() ? kTrouble : 0;
}

int act(const Flags& flags) {
  zero::ScaleReport report{
      .sweep = sweep_of(flags), .launcher = launcher_of(flags), .repeats = flags.repeats};
  const std::vector<zero::ScalePoint> points = report.sweep.points(report.left_out);
  report.sweep.check(points);
  ZERO_CHECK(flags.repeats > 0 || !flags.simulate.empty(),
             "--repeats 0: nothing would be measured; give --simulate FILE, or a number from 1");
  if (!flags.simulate.empty()) {
    report.predictions = zero::predict(report.sweep, points,
                                       zero::cluster_of_sweep(flags.simulate, report.sweep, points,
                                                              report.launcher, flags.repeats));
  }
  ZERO_CHECK(!flags.report.empty() || flags.dry_run,
             "--report is missing; give a folder that all hosts see");
  const std::string folder =
      std::filesystem::absolute(flags.report.empty() ? "report" : flags.report).string();
  zero::Console console(stdout, zero::output_mode());
  const zero::SweepRunner::Options options{.folder = folder,
                                           .program = program_of(flags),
                                           .launcher = report.launcher,
                                           .repeats = flags.repeats,
                                           .timeout = flags.timeout,
                                           .stopped = [] { return ending != 0; }};
  for (const std::string& line : report.left_out) console.line(line);
  if (flags.dry_run) {
    zero::print(zero::SweepRunner(report.sweep, options, console).commands_text(points));
    return 0;
  }
  std::filesystem::create_directories(folder + "/runs");
  const zero::RunLock lock({.key = "--report", .path = folder, .file = folder + "/.lock"});
  make_secret(report.launcher);
  // The run that goes on is ended, and what is measured stays.
  const zero::SignalWatcher watcher(note_end);
  return measure(flags, options, points, report, console);
}

/// The job that checks the hosts: this program, as ranks.
zero::Command check_command(const Flags& flags, const zero::Launcher& launcher) {
  zero::Command command{std::filesystem::read_symlink("/proc/self/exe").string(), "--check",
                        "--rank-of-check", "--device", flags.device};
  if (!launcher.hosts.empty()) {
    command.insert(command.end(),
                   {"--hosts", zero::hosts_text(launcher.hosts), "--launcher", flags.launcher});
  }
  if (!flags.report.empty()) {
    command.insert(command.end(), {"--report", std::filesystem::absolute(flags.report).string()});
  }
  return command;
}

/// How many ranks check the hosts: all that a run could have.
int ranks_to_check(const zero::Launcher& launcher) {
  if (!launcher.hosts.empty()) return zero::ranks_of(launcher.hosts);
  const zero::Start start = zero::read_start(zero::process_environment());
  return std::max(start.world, start.tasks_to_start);
}

/// Checks the hosts as a rank of a job, or starts the job.
int check(const Flags& flags, int argc, char** argv) {
  const zero::Launcher launcher = launcher_of(flags);
  if (flags.rank_of_check || launcher.kind == zero::Launcher::Kind::local) {
    const zero::Start start = zero::read_start(zero::process_environment());
    zero::PreflightQuestion question;
    if (flags.device == "cuda") question.device = zero::DeviceKind::cuda;
    question.hosts = static_cast<int>(launcher.hosts.size());
    question.folder = flags.report;
    return zero::run_preflight(start, question, &argc, &argv);
  }
  const int world = ranks_to_check(launcher);
  ZERO_CHECK(world > 1, "--check: found one rank to start; give --hosts or --hostfile");
  if (!launcher.secret_file.empty()) std::filesystem::create_directories(flags.report);
  make_secret(launcher);
  const std::string output = zero::make_temporary_file("zero_check");
  // The ranks are in process groups of their own: a terminal's signal reaches this process alone.
  const zero::SignalWatcher watcher(note_end);
  zero::Job job(launcher.commands(world, check_command(flags, launcher)), output);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(flags.timeout);
  std::optional<int> status;
  while (!(status = job.status()) && ending == 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (!status) job.end(std::chrono::seconds(2));
  const std::string text = zero::file_text(output);
  std::filesystem::remove(output);
  zero::print(zero::printable_text(text));
  if (ending != 0) {
    zero::print_error("zero_scale: --check was ended by signal {}\n", ending.load());
    return 128 + ending;
  }
  ZERO_CHECK(status, "--check: the ranks have not ended within {} s; see --timeout", flags.timeout);
  return *status == 0 ? 0 : kTrouble;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Measures how training scales: zero_train at several worlds, stages and meshes, strong and "
      "weak, started as a user starts it, each point several times in turns. Writes tables and a "
      "page of charts.\n"
      "  zero_scale --worlds 1,2,4,8 --device cuda --report scaling\n"
      "  zero_scale --launcher mpirun --hosts a:8,b:8 --worlds 1,8,16 --batch 16 --device cuda "
      "--report S\n"
      "Status: 0; 1 if a run failed, or nothing could be measured; 128 + a signal that ended it.",
      "zero_scale"};
  Flags flags;
  add_question(app, flags);
  add_start(app, flags);
  return zero::run_program(app, argc, argv, {},
                           [&] { return flags.check ? check(flags, argc, argv) : act(flags); });
}
