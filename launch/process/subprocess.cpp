// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/subprocess.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>
#include <thread>

#include "base/descriptor.h"
#include "base/error.h"
#include "launch/config/answers.h"
#include "launch/rendezvous/launcher_variables.h"

namespace zero {
namespace {

/// A file without a name that a program writes to.
class Capture {
 public:
  Capture() {
    ZERO_CHECK(file_ != nullptr, "cannot make a temporary file: {}", std::strerror(errno));
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() { std::fclose(file_); }

  int file() const { return ::fileno(file_); }
  std::string text() const {  // by the descriptor itself: takes no other one, and no /proc
    std::string all;
    std::array<char, 4096> part{};
    for (ssize_t got = 0;
         (got = ::pread(file(), part.data(), part.size(), static_cast<off_t>(all.size()))) > 0;) {
      all.append(part.data(), static_cast<std::size_t>(got));
    }
    return all;
  }

 private:
  std::FILE* file_ = std::tmpfile();
};

/// The environment without what a launcher has put there for this process: a job that is started
/// from here is a job of its own.
std::vector<char*> clean_environment() {
  std::vector<char*> clean;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!is_for_one_start(text.substr(0, text.find('=')))) clean.push_back(*entry);
  }
  clean.push_back(nullptr);
  return clean;
}

/// Whether Ctrl-C of the terminal reaches the program too.
enum class Group : std::uint8_t { of_this_process, own };

/// Starts a program, with its output in two files.
pid_t spawn(const Command& command, int output, int errors, Group group) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", 0, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, 1);
  ::posix_spawn_file_actions_adddup2(&actions, errors, 2);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t signals;
  ::sigemptyset(&signals);
  ::posix_spawnattr_setsigmask(&attributes, &signals);
  ::sigfillset(&signals);
  ::posix_spawnattr_setsigdefault(&attributes, &signals);
  const int apart = group == Group::own ? POSIX_SPAWN_SETPGROUP : 0;
  ::posix_spawnattr_setflags(
      &attributes, static_cast<short>(apart | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
  Command copies = command;
  std::vector<char*> arguments;
  for (std::string& each : copies) arguments.push_back(each.data());
  arguments.push_back(nullptr);
  std::vector<char*> environment = clean_environment();
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(),
                                    environment.data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  ZERO_CHECK(failed == 0, "cannot start {}: {}", command[0], std::strerror(failed));
  return child;
}

int shell_status(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// The living processes that this one has started, and those that they have, as /proc shows them.
std::vector<pid_t> descendants() {
  std::multimap<pid_t, pid_t> children;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    std::string text;
    if (!std::getline(std::ifstream(entry.path() / "stat"), text)) continue;
    std::istringstream fields(text.substr(text.rfind(')') + 1));  // behind the name
    char state = 0;
    pid_t parent = 0;
    if (!(fields >> state >> parent) || state == 'Z') continue;
    children.emplace(parent, std::atoi(entry.path().filename().c_str()));
  }
  std::vector<pid_t> found{::getpid()};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto each = begin; each != end; ++each) found.push_back(each->second);
  }
  found.erase(found.begin());
  return found;
}

constexpr std::chrono::milliseconds kLook{50};  // between two looks at a job's processes
constexpr std::chrono::seconds kLastWords{5};   // of the others, once a program has failed

constexpr std::chrono::seconds kGiveUp{30};  // after SIGKILL

}  // namespace

std::string shell_text(const Command& command) {
  std::string line;
  for (const std::string& word : command) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

Finished run_command(const Command& command) {
  const Capture output;
  const Capture errors;
  const pid_t child = spawn(command, output.file(), errors.file(), Group::of_this_process);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return {.status = shell_status(status), .output = output.text(), .errors = errors.text()};
}

std::string reason_in(const Finished& finished) {
  std::string reason;
  int most = 0;  // how surely a line is the reason: not empty, names an error, is our program's
  std::istringstream lines(finished.errors.empty() ? finished.output : finished.errors);
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \t\r-") == std::string::npos) continue;
    const int sure = line.starts_with("zero_")                 ? 3
                     : line.find("Error") != std::string::npos ? 2
                                                               : 1;
    if (sure < most) continue;
    reason = line;
    most = sure;
  }
  return reason;
}

Job::Job(const std::vector<Command>& commands, const std::string& output) {
  // A process whose parent ends becomes a child of this one, which can end it then.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  const Descriptor file(::open(output.c_str(), flags, 0644));
  ZERO_CHECK(file.get() >= 0, "cannot write {}: {}", output, std::strerror(errno));
  try {
    for (const Command& command : commands) {
      programs_.push_back({.id = spawn(command, file.get(), file.get(), Group::own)});
    }
  } catch (const Error&) {
    end(std::chrono::milliseconds(0));
    throw;
  }
}

Job::~Job() { end(std::chrono::milliseconds(0)); }

/// Of every child that has ended, adopted ones too.
void Job::reap() {
  int status = 0;
  for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto own = std::ranges::find(programs_, ended, &Program::id);
    if (own == programs_.end()) continue;
    own->status = shell_status(status);
    if (*own->status != 0 && !failed_at_) failed_at_ = std::chrono::steady_clock::now();
  }
}

std::optional<int> Job::status() {
  reap();
  const bool all =
      std::ranges::all_of(programs_, [](const Program& p) { return p.status.has_value(); });
  const bool late = failed_at_ && std::chrono::steady_clock::now() - *failed_at_ > kLastWords;
  if (!all && !late) return std::nullopt;
  for (const Program& program : programs_) {
    if (program.status && *program.status != 0) return program.status;
  }
  return 0;
}

void Job::end(std::chrono::milliseconds grace) {
  const auto kill_at = std::chrono::steady_clock::now() + grace;
  int signal = SIGTERM;
  for (bool asked = false;; std::this_thread::sleep_for(kLook)) {
    reap();
    const std::vector<pid_t> left = descendants();
    // One that a driver holds is beyond reach.
    if (left.empty() || std::chrono::steady_clock::now() >= kill_at + kGiveUp) return;
    if (std::chrono::steady_clock::now() >= kill_at) signal = SIGKILL;
    if (signal == SIGTERM && asked) continue;
    for (const pid_t each : left) ::kill(each, signal);
    asked = true;
  }
}

}  // namespace zero
