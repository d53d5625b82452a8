// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/machine_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string_view>

#include "base/file_text.h"
#include "base/host.h"
#include "base/whole_number.h"
#include "launch/process/quantity.h"
#include "launch/rendezvous/launcher_variables.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

constexpr int kMostId = std::numeric_limits<int>::max();  // of processes and ranks

/// The rank in a process's environment, by the variable that its launcher sets.
int rank_of(const std::string& environment) {
  const std::string lines = '\0' + environment;
  for (const std::string_view name : kRankVariables) {
    const std::string begin = '\0' + fmt::format("{}=", name);
    const std::size_t at = lines.find(begin);
    if (at == std::string::npos) continue;
    return whole_number(lines.c_str() + at + begin.size(), 0, kMostId).value_or(-1);
  }
  return -1;
}

std::string size_or_dash(std::int64_t bytes) { return bytes > 0 ? size_text(bytes) : "-"; }

}  // namespace

std::int64_t GpuMemory::bytes_of(int process) const {
  const auto found = processes.find(process);
  return found == processes.end() ? 0 : found->second;
}

std::string GpuMemory::label() const {
  return part == kWhole ? fmt::format("GPU {}", index) : fmt::format("GPU {}.{}", index, part);
}

std::vector<ZeroProcess> zero_processes(const std::string& root) {
  std::vector<ZeroProcess> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/proc", error)) {
    const auto id = whole_number(entry.path().filename().string(), 1, kMostId);
    if (!id || *id == ::getpid()) continue;
    std::string program = file_text(entry.path() / "comm");
    if (!program.starts_with("zero_")) continue;
    while (!program.empty() && program.back() == '\n') program.pop_back();
    const std::string status = file_text(entry.path() / "status");  // empty: it has ended
    if (status.empty() || number_behind(status, "Uid:") != ::getuid()) continue;
    all.push_back(
        {.id = *id,
         .program = program,
         .rank = rank_of(file_text(entry.path() / "environ")),
         .resident = 1024 * number_behind(status, "VmRSS:").value_or(0),
         .proportional =
             1024 * number_behind(file_text(entry.path() / "smaps_rollup"), "Pss:").value_or(0)});
  }
  std::ranges::sort(all, {}, &ZeroProcess::id);
  return all;
}

MachineMemory machine_memory() {
  return {.host = host_name(),
          .memory = cpu::open()->capacity(),
          .nvidia = nvidia_memory(),
          .processes = zero_processes()};
}

std::string machine_text(const MachineMemory& machine) {
  std::string text;
  const auto row = [&](std::string_view name, std::string_view total, std::string_view free,
                       std::string_view own, std::string_view what) {
    text += fmt::format("{:<8} {:>12} {:>12} {:>12}  {}\n", name, total, free, own, what);
  };
  const auto own = [&](const auto& bytes) {
    std::int64_t sum = 0;
    for (const ZeroProcess& each : machine.processes) sum += bytes(each);
    return size_or_dash(sum);
  };
  row("", "total", "free", "of zero_", "name");
  row("host", size_or_dash(machine.memory.total), size_text(machine.memory.free),
      own([](const ZeroProcess& each) {
        return each.proportional > 0 ? each.proportional : each.resident;
      }),
      machine.host);
  for (const GpuMemory& gpu : machine.nvidia.gpus) {
    const bool told = gpu.problem.empty();
    row(gpu.label(), told ? size_text(gpu.total) : "-", told ? size_text(gpu.free) : "-",
        own([&](const ZeroProcess& each) { return gpu.bytes_of(each.id); }),
        fmt::format("{}, {}{}", gpu.name, gpu.uuid,
                    told ? "" : fmt::format("; not told: {}", gpu.problem)));
  }
  if (!machine.nvidia.problem.empty()) {
    text += fmt::format("GPUs: not known: {}\n", machine.nvidia.problem);
  } else if (machine.nvidia.gpus.empty()) {
    text += "GPUs: none\n";
  }
  if (machine.processes.empty()) return text + "no zero_ program of this user runs here\n";
  constexpr fmt::string_view kRow = "{:>8} {:<16} {:>5} {:>12} {:>12} {:>12}\n";
  text +=
      "\n" + fmt::format(kRow, "process", "program", "rank", "resident", "own share", "on GPUs");
  for (const ZeroProcess& each : machine.processes) {
    std::int64_t on_gpus = 0;
    for (const GpuMemory& gpu : machine.nvidia.gpus) on_gpus += gpu.bytes_of(each.id);
    text += fmt::format(
        kRow, each.id, each.program, each.rank < 0 ? "-" : std::to_string(each.rank),
        size_or_dash(each.resident), size_or_dash(each.proportional), size_or_dash(on_gpus));
  }
  return text;
}

}  // namespace zero
