// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

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
      "{} host{} x {} {}{} of {}{}", hosts, hosts == 1 ? "" : "s", devices,
      kind == DeviceKind::cuda ? "GPU" : "rank", devices == 1 ? "" : "s",
      both_units(static_cast<double>(memory)),
      reserve == 0 ? ""
                   : fmt::format(", {} of it kept free", both_units(static_cast<double>(reserve))));
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

Machine this_machine(int ranks) {
  Machine machine{.source = "--machine this"};
  if (const int gpus = cuda::visible_devices(); gpus > 0 && ranks == 0) {
    machine.devices = gpus;
    machine.memory = cuda::open()->capacity().total;
    return machine;
  }
  machine.kind = DeviceKind::cpu;
  machine.devices = std::max(1, ranks);
  machine.memory = cpu::open()->capacity().total / machine.devices;
  ZERO_CHECK(machine.memory > 0,
             "--machine this: the system does not say how much memory there is; give a cluster "
             "file with kind \"cpu\" and its memory instead (--cluster FILE)");
  return machine;
}

void check(const Machine& machine) {
  ZERO_CHECK(machine.budget() > 0,
             "{}: all of {} is kept free ({}): nothing is left to plan; keep less free",
             machine.source, both_units(static_cast<double>(machine.memory)),
             both_units(static_cast<double>(machine.reserve)));
}

std::string left_out_text(const Machine& machine) {
  if (machine.kind == DeviceKind::cpu) return "";
  return fmt::format(
      ", in the driver's pages of 2 MiB{}{}",
      has_gpu_ops() ? "" : "; this build has no CUDA: the scratch of operations is a CPU's",
      machine.reserve > 0 ? ""
                          : ". Not in it: what CUDA's context, its libraries and NCCL take for "
                            "themselves; --reserve keeps that free");
}

nlohmann::ordered_json json_of(const Machine& machine) {
  return {{"hosts", machine.hosts},
          {"devices", machine.devices},
          {"kind", machine.kind == DeviceKind::cuda ? "gpu" : "cpu"},
          {"memory", machine.memory},
          {"reserve", machine.reserve}};
}

}  // namespace zero
