// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/fault_actions.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "base/cgroup.h"
#include "base/error.h"
#include "base/file_text.h"
#include "base/whole_number.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

void signal_itself(int number) {
  if (number != SIGSEGV) {
    ZERO_CHECK(::getpid() != 1,
               "run.faults: the system keeps signals that a container's first process sends itself "
               "from it; start the container with an init process (docker run --init)");
    ::kill(::getpid(), number);
    return;
  }
  // No raise(), which a container's first process ignores: a store where none is allowed. A handler
  // that reports the fault and restores the default meets it once more.
  void* const page = ::mmap(nullptr, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ZERO_CHECK(page != MAP_FAILED, "run.faults: segv: {}", std::strerror(errno));
  for (;;) *static_cast<volatile char*>(page) = 1;
}

void compute_for_ever() {
  std::atomic<std::uint64_t> turns{0};
  for (;;) turns.fetch_add(1, std::memory_order_relaxed);
}

void fill_until_killed() {
  ZERO_CHECK(memory_is_limited(),
             "run.faults: out_of_memory: no control group limits this process's memory any more; "
             "it would take the machine's");
  // This process is the system's first choice when the group's memory is gone.
  std::ofstream("/proc/self/oom_score_adj") << 1000;
  constexpr std::size_t kPiece = std::size_t{16} << 20;
  const auto most = static_cast<std::uint64_t>(total_memory().value_or(0));
  for (std::uint64_t taken = 0; taken <= 2 * most; taken += kPiece) {
    void* const piece =
        ::mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ZERO_CHECK(piece != MAP_FAILED, "run.faults: out_of_memory: {} more bytes: {}", kPiece,
               std::strerror(errno));
    std::memset(piece, 1, kPiece);
  }
  fail(
      "run.faults: out_of_memory: twice the {} bytes of the control group are taken, and the "
      "process was not killed: its pages may go to swap; give the group no swap",
      most);
}

bool is_connected_tcp(int file) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (::getpeername(file, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
  int type = 0;
  socklen_t type_size = sizeof type;
  ::getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &type_size);
  return type == SOCK_STREAM && (peer.ss_family == AF_INET || peer.ss_family == AF_INET6);
}

}  // namespace

FaultActions process_actions() {
  return {.signal = signal_itself,
          .loop = compute_for_ever,
          .cut = cut_tcp_connections,
          .fill_memory = fill_until_killed,
          .sleep =
              [](double seconds) {
                std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
              },
          .now = [] { return FaultActions::Clock::now(); },
          .say = [](const std::string& line) { print_to_stderr(line + "\n"); }};
}

int cut_tcp_connections() {
  std::vector<int> files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string name = entry.path().filename().string();
    if (const auto file = whole_number<int>(name, 0, 1 << 30)) files.push_back(*file);
  }
  int cut = 0;
  for (const int file : files) {
    if (is_connected_tcp(file) && ::shutdown(file, SHUT_RDWR) == 0) ++cut;
  }
  return cut;
}

bool memory_is_limited(const std::string& root) {
  const auto group = total_memory(root);
  const auto kilobytes = number_behind(file_text(root + "/proc/meminfo"), "MemTotal:");
  return group && kilobytes && *group < *kilobytes * 1024;
}

void FullDisk::need_room(const std::string& path, const char* what) const {
  ZERO_CHECK(!is_full(), "{}: cannot {}: {} (run.faults: disk_full)", path, what,
             std::strerror(ENOSPC));
}

std::unique_ptr<files::OutputFile> FullDisk::create(const std::string& path, std::int64_t bytes) {
  need_room(path, "create");
  return ForwardingFileSystem::create(path, bytes);
}

files::ScratchFile FullDisk::create_scratch(const std::string& folder, std::int64_t bytes) {
  need_room(folder, "create a file in it");
  return ForwardingFileSystem::create_scratch(folder, bytes);
}

void FullDisk::make_folder(const std::string& path) {
  need_room(path, "create");
  ForwardingFileSystem::make_folder(path);
}

std::int64_t FullDisk::free_bytes(const std::string& folder) {
  return is_full() ? 0 : ForwardingFileSystem::free_bytes(folder);
}

}  // namespace zero
