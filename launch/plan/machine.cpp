// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/cgroup.h"
#include "base/error.h"
#include "base/message_text.h"
#include "base/whole_number.h"
#include "launch/process/quantity.h"
#include "ops/ops.h"

namespace zero {

void Machine::check_world(std::string_view place) const {
  const std::int64_t all = std::int64_t{hosts} * devices;
  ZERO_CHECK(all <= kMostInAll,
             "{}: {} x {} (hosts x devices) are {} devices, expected at most {} in all to be "
             "planned",
             place, hosts, devices, all, kMostInAll);
}

BackendKind Machine::backend() const {
  if (world() == 1) return BackendKind::local;
  if (kind == DeviceKind::cuda) return BackendKind::nccl;
  return hosts == 1 ? BackendKind::host : BackendKind::mpi;
}

bool Machine::leaves_host(Axis axis, const MeshShape& mesh) const {
  if (hosts == 1 || mesh.size(axis) == 1) return false;
  const int extent = axis == Axis::tensor  ? mesh.tensor
                     : axis == Axis::shard ? mesh.tensor * mesh.shard
                                           : world();
  return extent > devices || devices % extent != 0;
}

bool Machine::has_rates(DType dtype) const {
  return rate(dtype) > 0 && (devices == 1 || within_host > 0) && (hosts == 1 || between_hosts > 0);
}

double Machine::reached(DType dtype) const {
  if (rate(dtype) > 0) return rate(dtype);
  return dtype == DType::fp32 ? times.peak_fp32 : times.peak;
}

double Machine::peak(DType dtype) const {
  const double peak = dtype == DType::fp32 ? times.peak_fp32 : times.peak;
  return peak > 0 ? peak : reached(dtype);
}

std::string Machine::text() const {
  return fmt::format(
      "{} x {} of {}{}{}{}{}", counted(hosts, "host"),
      counted(devices, kind == DeviceKind::cuda ? "GPU" : "rank"),
      both_units(static_cast<double>(memory)), memory_source.empty() ? "" : ", ", memory_source,
      reserve == 0 ? ""
                   : fmt::format(", {} of it kept free", both_units(static_cast<double>(reserve))),
      host_memory == 0
          ? ""
          : fmt::format("; {} of a host", both_units(static_cast<double>(host_memory))));
}

std::int64_t usual_reserve(const Machine& machine) {
  constexpr std::int64_t kLeftToNccl = std::int64_t{1} << 30;
  if (machine.kind == DeviceKind::cpu) return 0;
  return cuda::kLeftToLibraries + (machine.world() > 1 ? kLeftToNccl : 0);
}

void take_gpus(Machine& machine, std::string_view text, std::string_view flag) {
  const std::size_t by = text.find('x');
  const bool split = by != std::string_view::npos;
  const auto hosts = split ? whole_number(text.substr(0, by), 1, Machine::kMostHosts)
                           : std::optional(machine.hosts);
  const auto devices = whole_number(split ? text.substr(by + 1) : text, 1, Machine::kMostDevices);
  ZERO_CHECK(hosts && devices,
             "{}: found \"{}\", expected GPUs of one host, such as 8, or hosts x GPUs of a host, "
             "such as 2x8 (at most {} x {})",
             flag, printable_line(text), Machine::kMostHosts, Machine::kMostDevices);
  machine.hosts = *hosts;
  machine.devices = *devices;
  machine.check_world(flag);
  machine.kind = DeviceKind::cuda;
  machine.source = flag;
}

std::int64_t part_of_host(int ranks) {
  const auto available = available_memory();
  if (!available) return 0;
  constexpr std::int64_t kNotCounted = 16;  // one part of so many
  const std::int64_t part = *available / ranks;
  return std::max<std::int64_t>(1, part - part / kNotCounted);
}

Machine this_machine(int ranks) {
  Machine machine{.source = "--machine this"};
  if (const int gpus = cuda::visible_devices(); gpus > 0 && ranks == 0) {
    machine.devices = gpus;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      const std::int64_t free = cuda::capacity_of(gpu).free;
      if (gpu > 0 && free >= machine.memory) continue;
      machine.memory = free;
      machine.memory_source =
          fmt::format("free on GPU {}{}", gpu, gpus == 1 ? "" : ", the least of all");
    }
    machine.reserve = usual_reserve(machine);
    machine.host_memory = part_of_host(1);
    return machine;
  }
  machine.kind = DeviceKind::cpu;
  machine.devices = std::max(1, ranks);
  machine.memory = available_memory().value_or(0) / machine.devices;
  machine.memory_source = machine.devices == 1 ? "available on this host"
                                               : "a rank's part of what is available on this host";
  ZERO_CHECK(machine.memory > 0,
             "--machine this: the system does not say how much memory there is; give a cluster "
             "file with kind \"cpu\" and its memory instead (--cluster FILE)");
  return machine;
}

void check(const Machine& machine) {
  ZERO_CHECK(machine.kind == DeviceKind::cuda || machine.host_memory == 0,
             "{}: host memory of {} is given, expected none for CPUs, whose memory is the host's; "
             "leave it out",
             machine.source, both_units(static_cast<double>(machine.host_memory)));
  ZERO_CHECK(machine.budget() > 0,
             "{}: all of {} is kept free ({}): nothing is left to plan; keep less free, such as "
             "--reserve 0B",
             machine.source, both_units(static_cast<double>(machine.memory)),
             both_units(static_cast<double>(machine.reserve)));
}

std::string not_counted_text(const Machine& machine) {
  const std::string kept =
      machine.reserve > 0
          ? fmt::format("{} kept free for that", both_units(static_cast<double>(machine.reserve)))
          : "nothing is kept free for that (--reserve)";
  return fmt::format("what {} for themselves; {}",
                     machine.kind == DeviceKind::cuda
                         ? "CUDA's context, its libraries, kernels and graphs, and NCCL take"
                         : "the program, its libraries and MPI take",
                     kept);
}

std::string planned_with_text(const Machine& machine) {
  return machine.kind == DeviceKind::cpu || has_gpu_ops() ? "the device's operations"
                                                          : "a CPU's operations";
}

std::string left_out_text(const Machine& machine) {
  const bool gpu = machine.kind == DeviceKind::cuda;
  return fmt::format(
      "{}{}. Not in it: {}", gpu ? ", in the driver's pages of 2 MiB" : "",
      !gpu || has_gpu_ops() ? "" : "; this build has no CUDA: the scratch of operations is a CPU's",
      not_counted_text(machine));
}

nlohmann::ordered_json json_of(const Machine& machine) {
  return {{"hosts", machine.hosts},
          {"devices", machine.devices},
          {"kind", machine.kind == DeviceKind::cuda ? "gpu" : "cpu"},
          {"memory", machine.memory},
          {"memory_source", machine.memory_source.empty() ? "given" : machine.memory_source},
          {"reserve", machine.reserve},
          {"host_memory", machine.host_memory > 0 ? nlohmann::ordered_json(machine.host_memory)
                                                  : nlohmann::ordered_json()}};
}

}  // namespace zero
