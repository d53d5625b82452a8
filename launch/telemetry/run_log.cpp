// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/run_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "collectives/agreement.h"
#include "files/disk_calls.h"
#include "files/file_system.h"
#include "launch/config/train_config.h"
#include "launch/process/open_files.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

/// The step of a line of the log; 0 for another line, JSON or not.
std::int64_t step_of(const nlohmann::json& line) {
  if (!line.is_object()) return 0;
  const auto step = line.find("step");
  return step != line.end() && step->is_number_integer() ? step->get<std::int64_t>() : 0;
}

/// Throws unless the value of `key` in a line of the file `path` is `expected`; `what` names it.
void check_same(const std::string& path, const nlohmann::json& line, const char* key,
                const std::string& what, const nlohmann::json& expected) {
  const bool has = line.is_object() && line.contains(key);
  ZERO_CHECK(has && line.at(key) == expected,
             "run.log: {} is not the log of the checkpoint's run: {} is {}, expected {}; move the "
             "file away, or give another run.log",
             path, what, has ? line.at(key).dump() : "missing", expected.dump());
}

void check_loss(const std::string& path, const nlohmann::json& line,
                std::optional<double> expected) {
  check_same(path, line, "loss", fmt::format("its loss of step {}", step_of(line)),
             expected ? nlohmann::json(*expected) : nlohmann::json());
}

/// Standard output or error, if that is the open file; else -1.
int standard_stream(int file) {
  struct stat own {};
  if (files::uninterrupted([&] { return ::fstat(file, &own); }) != 0) return -1;
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat status {};
    if (files::uninterrupted([&] { return ::fstat(stream, &status); }) == 0 &&
        status.st_ino == own.st_ino && status.st_dev == own.st_dev) {
      return stream;
    }
  }
  return -1;
}

/// Does not wait for the reader of a pipe; lines do, as for any pipe that is full. The file of a
/// standard stream is written at that stream's place, so that neither's lines lie over the other's.
Descriptor open_log(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  Descriptor file(files::uninterrupted([&] { return ::open(path.c_str(), kFlags, 0644); }));
  ZERO_CHECK(file.get() >= 0 || errno != ENXIO,
             "run.log: {} is a pipe or a socket that nobody reads; start its reader first, or give "
             "the path of a file",
             path);
  const int flags = file.get() >= 0 ? ::fcntl(file.get(), F_GETFL) : -1;
  ZERO_CHECK(flags >= 0 && ::fcntl(file.get(), F_SETFL, flags & ~O_NONBLOCK) == 0,
             "run.log: cannot write {}: {}; give the path of a file you may write to", path,
             std::strerror(errno));
  if (const int stream = standard_stream(file.get()); stream >= 0) {
    file = Descriptor(::fcntl(stream, F_DUPFD_CLOEXEC, 0));
  }
  return file;
}

constexpr std::size_t kMostCause = 500;

struct Counter {
  const char* variable;
  const char* by;
};
constexpr std::array kCounters{Counter{"TORCHELASTIC_RESTART_COUNT", "torchrun"},
                               Counter{"SLURM_RESTART_COUNT", "Slurm"}};

/// The number and the cause that retry.sh says, if it does so of the run in `folder`:
/// "CAUSE<tab>FOLDER".
std::optional<std::string> cause_of_run_in(const std::string& folder, const std::string& told) {
  const std::size_t tab = told.find('\t');
  if (tab == std::string::npos) return std::nullopt;
  if (!files::same_place(told.substr(tab + 1), folder)) return std::nullopt;
  return told.substr(0, tab);
}

}  // namespace

RunLog::RunLog(const std::string& path, std::chrono::milliseconds patience)
    : path_(path), file_(open_log(path)) {
  lock(patience);
}

void RunLog::lock(std::chrono::milliseconds patience) const {
  constexpr std::chrono::milliseconds kBetween{50};
  const auto end = std::chrono::steady_clock::now() + patience;
  while (regular() && lock_file(file_.get()) == EAGAIN) {
    ZERO_CHECK(std::chrono::steady_clock::now() < end,
               "run.log: {} is another run's log, under this name or another (a hard link); end "
               "that run or wait for its end, or give this one another run.log",
               path_);
    std::this_thread::sleep_for(kBetween);
  }
}

bool RunLog::regular() const {
  struct stat status {};
  return files::uninterrupted([&] { return ::fstat(file_.get(), &status); }) == 0 &&
         S_ISREG(status.st_mode) && standard_stream(file_.get()) < 0;
}

std::string RunLog::start_over() {
  struct stat status {};
  const auto look = [&] { return ::fstat(file_.get(), &status); };
  if (!regular() || files::uninterrupted(look) != 0 || status.st_size == 0) return "";
  const std::string old = files::behind_links(path_);
  const std::string aside = free_name(old);
  const std::string why = failure_of([&] { files::disk().rename(old, aside); });
  ZERO_CHECK(why.empty(),
             "run.log: {}; move the log of an earlier run away, or give another run.log", why);
  file_ = open_log(path_);
  lock({});
  return aside;
}

RunLog::Cut RunLog::go_on(const LogPoint& at) {
  const files::DiskCall counted;  // std::ifstream reads: memory may not hold a log
  Cut cut;
  if (!regular()) return cut;
  std::ifstream old(path_, std::ios::binary);
  std::int64_t read = 0;
  std::int64_t kept = 0;
  bool counts = true;  // whether lines of steps up to at.step may still follow
  for (std::string text; std::getline(old, text);) {
    ++cut.lines;
    const bool whole = !old.eof();  // ended by a newline
    nlohmann::json line;
    if (counts) line = nlohmann::json::parse(text, nullptr, false);
    if (read == 0 && line.is_discarded()) return {.aside = start_over()};
    if (read == 0) check_same(path_, line, "run", "\"run\" of its first line", at.run);
    read += std::ssize(text) + 1;
    const std::int64_t step = step_of(line);
    counts = counts && whole && step <= at.step && !line.contains("final");
    if (!counts || step <= 0) continue;
    if (step == 1) check_loss(path_, line, at.first_loss);
    if (step == at.step) check_loss(path_, line, at.loss);
    kept = read;
    cut = {.lines = 0, .last_step = step, .line = std::move(line)};
  }
  ZERO_CHECK(!old.bad(), "run.log: {} cannot be read; nothing of it is cut off", path_);
  if (cut.lines == 0) return cut;
  ZERO_CHECK(files::uninterrupted([&] { return ::ftruncate(file_.get(), kept); }) == 0,
             "run.log: cannot cut {}: {}", path_, std::strerror(errno));
  return cut;
}

void RunLog::write(const nlohmann::ordered_json& line) {
  write_whole(file_.get(), line.dump() + "\n", "run.log", path_);
}

void RunLog::sync() {
  if (!regular()) return;
  ZERO_CHECK(files::uninterrupted([&] { return ::fdatasync(file_.get()); }) == 0,
             "run.log: {} may not be on the disk: {}", path_, std::strerror(errno));
}

void TrainingLog::start_over() {
  if (log_ == nullptr) return;
  const std::string aside = log_->start_over();
  if (aside.empty()) return;
  console_.line(
      fmt::format("{} begins anew; the log of an earlier run is kept as {}", log_->path(), aside));
}

void TrainingLog::go_on(const LogPoint& at) {
  if (log_ == nullptr) return;
  const RunLog::Cut cut = log_->go_on(at);
  if (cut.lines > 0) {
    console_.line(fmt::format("{}: the {} lines behind step {} are cut off", log_->path(),
                              cut.lines, cut.last_step));
  } else if (!cut.aside.empty()) {
    console_.line(fmt::format("warning: the first line of {} is no JSON; the log is kept as {}",
                              log_->path(), cut.aside));
  }
  if (cut.last_step != at.step) {
    console_.line(fmt::format(
        "warning: {} ends at step {}, the checkpoint is of step {}: the lines between are lost",
        log_->path(), cut.last_step, at.step));
    return;
  }
  const int before = cut.line.value("mesh_tensor", 1);
  if (before == config_.mesh.tensor) return;
  console_.line(
      fmt::format("mesh.tensor was {} before, and is {}: the states are the same bit for bit, the "
                  "steps from here on round differently",
                  before, config_.mesh.tensor));
}

void TrainingLog::write(const nlohmann::ordered_json& line) {
  if (log_ == nullptr) return;
  try {
    log_->write(line);
  } catch (const Error& error) {
    log_ = nullptr;
    failed_ = true;
    console_.end_progress();
    console_.line(fmt::format("warning: {}; {}", error.what(),
                              config_.checkpoints.folder.empty()
                                  ? "the run goes on without a log"
                                  : "the run saves a checkpoint, then ends"));
  }
}

std::string restart_text(const Environment& environment, const std::string& folder) {
  if (const auto told = environment("ZERO_RESTART")) {
    const auto cause = cause_of_run_in(folder, *told);
    if (cause) return "restart " + printable_line(*cause, kMostCause);
  }
  for (const auto& [variable, by] : kCounters) {
    const auto count = environment(variable);
    if (!count || *count == "0") continue;
    return std::string("restart ") + printable_line(*count, kMostCause) + " by " + by;
  }
  return "";
}

}  // namespace zero
