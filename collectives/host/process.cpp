// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file_text.h"

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434  // the same on every architecture; older headers lack the name
#endif

namespace zero::host {
namespace {

// Linux has always given the first one this number (include/linux/proc_ns.h).
constexpr std::string_view kFirstUserNamespace = "user:[4026531837]";

struct Status {
  char state = '?';          // as in proc(5)
  std::uint64_t faults = 0;  // of pages, minor and major
  std::uint64_t user = 0;    // clock ticks in user mode
  std::uint64_t kernel = 0;  // and in the kernel
  std::uint64_t start = 0;
};

// Fields 3, 10, 12, 14, 15 and 22 of /proc/ID/stat, counted after the command's closing
// parenthesis; nothing if the file cannot be read.
std::optional<Status> status_in(const Descriptor& file) {
  constexpr int kFieldsBefore = 6;   // between the state and the faults, each of which has behind
                                     // it that of waited-for children
  constexpr int kFieldsBetween = 6;  // between the times and the start
  std::array<char, 4096> text{};     // the file has 52 short fields
  const ssize_t length = file.get() < 0 ? -1 : read(file.get(), text.data(), text.size());
  if (length <= 0) return std::nullopt;
  const std::string line(text.data(), static_cast<std::size_t>(length));
  const std::size_t command_end = line.rfind(')');
  if (command_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(command_end + 1));
  Status status;
  std::string skipped;
  std::uint64_t major = 0;
  fields >> status.state;
  for (int i = 0; i < kFieldsBefore; ++i) fields >> skipped;
  fields >> status.faults >> skipped >> major >> skipped >> status.user >> status.kernel;
  for (int i = 0; i < kFieldsBetween; ++i) fields >> skipped;
  fields >> status.start;
  status.faults += major;
  return fields.fail() ? std::nullopt : std::optional(status);
}

// "pid:[4026531836]"; "" if the system does not have that kind of namespace.
std::string namespace_in(const char* link) {
  std::array<char, 64> name{};
  const ssize_t length = readlink(link, name.data(), name.size() - 1);
  return {name.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

std::optional<Status> status_of(int id, const std::string& root = "") {
  const std::string path = fmt::format("{}/proc/{}/stat", root, id);
  return status_in(Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC)));
}

bool ended_in(const Process& process, const std::string& root) {
  const auto status = status_of(process.id, root);
  if (!status) return kill(process.id, 0) != 0 && errno == ESRCH;  // needs no descriptor
  return status->state == 'X' || status->state == 'Z' || status->start != process.start;
}

}  // namespace

Process process(int id) {
  const auto status = status_of(id);
  ZERO_CHECK(status, "/proc/{}/stat cannot be read: {}; processes that share memory need it", id,
             std::strerror(errno));
  return {id, status->start};
}

Process this_process() { return process(static_cast<int>(getpid())); }

bool ended(const Process& process) { return ended_in(process, ""); }

std::string described(const Process& process) {
  const auto status = status_of(process.id);
  if (!status && !ended(process)) return fmt::format("process {}", process.id);
  std::string_view does = "has ended";
  if (status && status->start == process.start) {
    switch (status->state) {
      case 'R':
        does = "runs";
        break;
      case 'S':
        does = "sleeps";
        break;
      case 'D':
      case 'I':
        does = "waits for a disk or a device";
        break;
      case 'T':
        does = "is stopped";
        break;
      case 't':
        does = "is stopped by a debugger";
        break;
      default:
        break;
    }
  }
  return fmt::format("process {} {}", process.id, does);
}

std::optional<Activity> activity(const Process& process, const std::string& root) {
  if (ended_in(process, root)) return std::nullopt;
  const std::int64_t nanoseconds_a_tick = 1'000'000'000 / sysconf(_SC_CLK_TCK);
  const auto self = process.id == getpid() ? syscall(SYS_gettid) : 0;
  const std::string folder = fmt::format("{}/proc/{}", root, process.id);
  // The pidfd of a process that has crashed waits for its dump, which takes as long as a disk or a
  // collector does.
  const bool dumps = file_text(folder + "/status").find("\nCoreDumping:\t1\n") != std::string::npos;
  Activity all{.dumps_core = dumps, .stopped = true};
  bool any = false;
  std::error_code error;
  const std::filesystem::directory_iterator threads(folder + "/task", error);
  for (auto thread = begin(threads); thread != end(threads) && !error; thread.increment(error)) {
    if (thread->path().filename() == std::to_string(self)) continue;
    const std::string path = thread->path() / "stat";
    const auto status = status_in(Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC)));
    if (!status || status->state == 'Z' || status->state == 'X') continue;  // has ended
    any = true;
    all.stopped = all.stopped && (status->state == 'T' || status->state == 't');
    all.runnable = all.runnable || status->state == 'R';
    // Lustre's calls wait in 'I', as threads of the kernel do that have nothing to do.
    all.in_device = all.in_device || status->state == 'D' || status->state == 'I';
    all.cpu += static_cast<std::int64_t>(status->user + status->kernel) * nanoseconds_a_tick;
    all.kernel += static_cast<std::int64_t>(status->kernel) * nanoseconds_a_tick;
    all.faults += static_cast<std::int64_t>(status->faults);
  }
  return any ? std::optional(all) : std::nullopt;
}

std::string process_namespace() { return namespace_in("/proc/self/ns/pid"); }

std::string user_namespace() {
  std::string name = namespace_in("/proc/self/ns/user");
  return name.empty() ? std::string(kFirstUserNamespace) : name;
}

bool in_first_user_namespace() { return user_namespace() == kFirstUserNamespace; }

std::uint64_t start_of(const Descriptor& directory) {
  const auto status = status_in(Descriptor(openat(directory.get(), "stat", O_RDONLY | O_CLOEXEC)));
  return status ? status->start : 0;
}

Watch::Watch(const Process& process)
    : process_(process), handle_(static_cast<int>(syscall(SYS_pidfd_open, process.id, 0))) {}

// The handle becomes readable when the process ends.
bool Watch::ended() const {
  pollfd one{.fd = handle_.get(), .events = POLLIN, .revents = 0};
  if (handle_.get() < 0 || poll(&one, 1, 0) < 0) return host::ended(process_);
  return one.revents != 0;
}

void Watch::kill() const {
  const bool sent =
      handle_.get() >= 0 &&
      (syscall(SYS_pidfd_send_signal, handle_.get(), SIGKILL, nullptr, 0) == 0 || errno == ESRCH);
  if (!sent && !ended()) ::kill(process_.id, SIGKILL);  // a sandbox may know the first call alone
}

}  // namespace zero::host
