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
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

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
// Times are read to a hundredth of a second: of this much, which thread ran most is certain.
constexpr std::int64_t kLeastChoice = 50'000'000;
// What ran before a pause between looks says nothing of now.
constexpr std::chrono::seconds kMostPause{1};

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

// The number behind "NAME:\t" in a text of /proc/ID/status; 0 if it has none.
std::int64_t number_in(std::string_view status, std::string_view name) {
  const std::size_t found = status.find(fmt::format("\n{}:", name));
  if (found == std::string_view::npos) return 0;
  const std::size_t begin = status.find_first_of("0123456789", found + name.size());
  std::int64_t number = 0;
  if (begin < status.find('\n', found + 1)) {
    std::from_chars(status.data() + begin, status.data() + status.size(), number);
  }
  return number;
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

std::optional<std::size_t> BusiestThread::of(std::span<const Thread> threads, Time now) {
  const std::scoped_lock lock(mutex_);
  if (now - std::exchange(looked_, now) > kMostPause) before_.clear();
  std::int64_t all = 0;
  std::int64_t most = 0;
  std::optional<std::size_t> found;
  std::optional<std::size_t> chosen;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    const Thread& one = threads[i];
    const auto before = before_.find(one.id);
    const std::int64_t ran = one.cpu - (before == before_.end() ? 0 : before->second);
    all += ran;
    if (!one.runnable) continue;
    if (one.id == chosen_) chosen = i;
    if (found && ran <= most) continue;
    found = i;
    most = ran;
  }
  if (!before_.empty()) {
    if (all < kLeastChoice) return chosen;
    if (2 * most <= all) found.reset();
  }
  chosen_ = found ? threads[*found].id : 0;
  before_.clear();
  for (const Thread& one : threads) before_[one.id] = one.cpu;
  return found;
}

std::optional<Activity> activity(const Process& process, BusiestThread* busiest,
                                 const std::string& root) {
  if (ended_in(process, root)) return std::nullopt;
  const std::int64_t nanoseconds_a_tick = 1'000'000'000 / sysconf(_SC_CLK_TCK);
  const auto self = process.id == getpid() ? gettid() : 0;
  const std::string folder = fmt::format("{}/proc/{}", root, process.id);
  // The pidfd of a process that has crashed waits for its dump, which takes as long as a disk or a
  // collector does.
  const std::string of_process = file_text(folder + "/status");
  Activity all{
      .dumps_core = number_in(of_process, "CoreDumping") != 0,
      .stopped = true,
      .resident = (number_in(of_process, "VmRSS") - number_in(of_process, "RssFile")) * 1024};
  std::vector<Thread> some;
  std::error_code error;
  const std::filesystem::directory_iterator threads(folder + "/task", error);
  for (auto thread = begin(threads); thread != end(threads) && !error; thread.increment(error)) {
    if (thread->path().filename() == std::to_string(self)) continue;
    const std::string path = thread->path() / "stat";
    const auto status = status_in(Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC)));
    if (!status || status->state == 'Z' || status->state == 'X') continue;  // has ended
    all.stopped = all.stopped && (status->state == 'T' || status->state == 't');
    all.runnable = all.runnable || status->state == 'R';
    // Lustre's calls wait in 'I', as threads of the kernel do that have nothing to do.
    all.in_device = all.in_device || status->state == 'D' || status->state == 'I';
    some.push_back(
        {.id = std::atoi(thread->path().filename().c_str()),
         .runnable = status->state == 'R',
         .cpu = static_cast<std::int64_t>(status->user + status->kernel) * nanoseconds_a_tick,
         .kernel = static_cast<std::int64_t>(status->kernel) * nanoseconds_a_tick,
         .faults = static_cast<std::int64_t>(status->faults)});
    all.cpu += some.back().cpu;
  }
  if (some.empty()) return std::nullopt;
  const auto index =
      busiest == nullptr ? std::nullopt : busiest->of(some, std::chrono::steady_clock::now());
  if (!index) return all;
  all.busiest = some[*index];
  const std::string of_thread = file_text(fmt::format("{}/task/{}/status", folder, all.busiest.id));
  all.busiest.switches = number_in(of_thread, "voluntary_ctxt_switches");
  return all;
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
