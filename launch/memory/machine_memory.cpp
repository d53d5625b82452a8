// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/machine_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/host.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

std::optional<int> plain_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string proc_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

/// The first number behind `field` in a file of lines "Field: number kB"; 0 if there is none.
std::int64_t number_of_field(const std::string& text, std::string_view field) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(field) || line.size() <= field.size() || line[field.size()] != ':') {
      continue;
    }
    std::istringstream words(line.substr(field.size() + 1));
    std::int64_t number = 0;
    return words >> number ? number : 0;
  }
  return 0;
}

/// The rank in a process's environment, by the variable that its launcher sets.
int rank_of(const std::string& environment) {
  constexpr std::array<std::string_view, 4> kNames{
      "RANK=", "OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "SLURM_PROCID="};
  for (const std::string_view name : kNames) {
    for (std::size_t from = 0; from < environment.size();) {
      const std::string_view variable(environment.c_str() + from);
      if (variable.starts_with(name))
        return plain_number(variable.substr(name.size())).value_or(-1);
      from += variable.size() + 1;
    }
  }
  return -1;
}

std::string sized_or_dash(std::int64_t bytes) {
  return bytes > 0 ? bytes_text(static_cast<double>(bytes)) : "-";
}

std::int64_t gpu_bytes(const NvidiaMemory& nvidia, int process) {
  std::int64_t bytes = 0;
  for (const GpuMemory& gpu : nvidia.gpus) {
    const auto found = gpu.processes.find(process);
    if (found != gpu.processes.end()) bytes += found->second;
  }
  return bytes;
}

}  // namespace

std::vector<ZeroProcess> zero_processes(const std::string& root) {
  std::vector<ZeroProcess> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/proc", error)) {
    const auto id = plain_number(entry.path().filename().string());
    if (!id || *id == ::getpid()) continue;
    std::string program = proc_text(entry.path() / "comm");
    if (!program.starts_with("zero_")) continue;
    while (!program.empty() && program.back() == '\n') program.pop_back();
    const std::string status = proc_text(entry.path() / "status");  // empty: it has ended
    if (status.empty() || number_of_field(status, "Uid") != ::getuid()) continue;
    all.push_back(
        {.id = *id,
         .program = program,
         .rank = rank_of(proc_text(entry.path() / "environ")),
         .resident = 1024 * number_of_field(status, "VmRSS"),
         .proportional = 1024 * number_of_field(proc_text(entry.path() / "smaps_rollup"), "Pss")});
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
  std::string text =
      fmt::format("{:<8} {:>12} {:>12} {:>12}  {}\n", "", "total", "free", "of zero_", "name");
  std::int64_t resident = 0;
  for (const ZeroProcess& each : machine.processes) {
    resident += each.proportional > 0 ? each.proportional : each.resident;
  }
  const auto row = [&](const std::string& name, const MemoryCapacity& memory, std::int64_t own,
                       const std::string& what) {
    text += fmt::format("{:<8} {:>12} {:>12} {:>12}  {}\n", name, sized_or_dash(memory.total),
                        bytes_text(static_cast<double>(memory.free)), sized_or_dash(own), what);
  };
  row("host", machine.memory, resident, machine.host);
  for (const GpuMemory& gpu : machine.nvidia.gpus) {
    std::int64_t own = 0;
    for (const ZeroProcess& each : machine.processes) {
      const auto found = gpu.processes.find(each.id);
      if (found != gpu.processes.end()) own += found->second;
    }
    row(fmt::format("GPU {}", gpu.index), {.total = gpu.total, .free = gpu.free}, own,
        fmt::format("{}, {}", gpu.name, gpu.uuid));
  }
  if (!machine.nvidia.problem.empty()) {
    text += fmt::format("GPUs: not known: {}\n", machine.nvidia.problem);
  } else if (machine.nvidia.gpus.empty()) {
    text += "GPUs: none\n";
  }
  if (machine.processes.empty()) return text + "no zero_ program of this user runs here\n";
  text += fmt::format("\n{:>8} {:<16} {:>5} {:>12} {:>12} {:>12}\n", "process", "program", "rank",
                      "resident", "own share", "on GPUs");
  for (const ZeroProcess& each : machine.processes) {
    text += fmt::format("{:>8} {:<16} {:>5} {:>12} {:>12} {:>12}\n", each.id, each.program,
                        each.rank < 0 ? "-" : std::to_string(each.rank),
                        sized_or_dash(each.resident), sized_or_dash(each.proportional),
                        sized_or_dash(gpu_bytes(machine.nvidia, each.id)));
  }
  return text;
}

}  // namespace zero
