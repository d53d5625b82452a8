// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

namespace zero::host {
namespace {

struct Status {
  char state = 'X';  // as in proc(5); X: there is none
  std::uint64_t start = 0;
};

// Field 3 and field 22 of /proc/ID/stat, counted after the command's closing parenthesis.
Status status_of(int id) {
  constexpr int kFieldsBetween = 18;
  std::ifstream file(fmt::format("/proc/{}/stat", id));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t command_end = text.rfind(')');
  if (command_end == std::string::npos) return {};
  std::istringstream fields(text.substr(command_end + 1));
  Status status;
  std::string skipped;
  fields >> status.state;
  for (int i = 0; i < kFieldsBetween; ++i) fields >> skipped;
  fields >> status.start;
  return status;
}

}  // namespace

Process process(int id) { return {id, status_of(id).start}; }

Process this_process() { return process(static_cast<int>(getpid())); }

bool ended(const Process& process) {
  const Status status = status_of(process.id);
  return status.state == 'X' || status.state == 'Z' || status.start != process.start;
}

std::string described(const Process& process) {
  const Status status = status_of(process.id);
  std::string_view does = "has ended";
  if (status.start == process.start) {
    switch (status.state) {
      case 'R':
        does = "runs";
        break;
      case 'S':
      case 'I':
        does = "sleeps";
        break;
      case 'D':
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

std::string process_namespace() {
  std::array<char, 64> name{};
  const ssize_t length = readlink("/proc/self/ns/pid", name.data(), name.size() - 1);
  return {name.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

}  // namespace zero::host
