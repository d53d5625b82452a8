// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/cgroup.h"
#include "base/error.h"
#include "base/message_text.h"
#include "launch/config/configuration.h"
#include "launch/plan/cluster_fields.h"
#include "launch/process/quantity.h"
#include "ops/ops.h"

namespace zero {
namespace {

using nlohmann::json;

constexpr int kMostHosts = 1 << 16;
constexpr int kMostDevices = 1024;

/// A count from 1 to `most`; nothing but digits.
bool take_count(std::string_view text, int most, int& count) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc() && end == text.data() + text.size() && count >= 1 && count <= most;
}

/// Throws if there are more devices than are planned within seconds; `place`: the flag or file.
void check_world(const Machine& machine, std::string_view place) {
  const std::int64_t all = std::int64_t{machine.hosts} * machine.devices;
  ZERO_CHECK(all <= Machine::kMostInAll,
             "{}: {} x {} (hosts x devices) are {} devices, expected at most {} in all to be "
             "planned",
             place, machine.hosts, machine.devices, all, Machine::kMostInAll);
}

constexpr std::string_view kBytesExample = "a text with a unit, such as \"80GB\"";
constexpr std::string_view kRateExample = "a text with a unit, such as \"400TFLOP/s\"";

/// "300GB/s", or an object with its latency.
void take_link(const ClusterFields& links, const char* key, double& bandwidth, double& latency) {
  if (!links.has(key)) return;
  const auto rate = [&](const ClusterFields& fields, const char* name) {
    bandwidth = link_rate(
        fields.text(name,
                    "a text with a unit, such as \"300GB/s\", or an object with bandwidth "
                    "and latency"),
        fields.place(name));
  };
  if (!links.object(key).is_object()) return rate(links, key);
  const ClusterFields link = links.section(key, {"bandwidth", "latency"});
  link.require("bandwidth", "\"300GB/s\"");
  rate(link, "bandwidth");
  link.take_seconds("latency", latency);
}

void take_links(Machine& machine, const ClusterFields& fields) {
  if (!fields.has("links")) return;
  const ClusterFields links =
      fields.section("links", {"within_host", "between_hosts", "between_switches", "of_host",
                               "hosts_of_switch", "message", "collective"});
  MachineTimes& times = machine.times;
  take_link(links, "within_host", machine.within_host, times.within_host_latency);
  take_link(links, "between_hosts", machine.between_hosts, times.between_hosts_latency);
  take_link(links, "between_switches", times.between_switches, times.between_switches_latency);
  if (links.has("of_host")) {
    times.host_bandwidth =
        link_rate(links.text("of_host", "a text such as \"400Gbit/s\""), links.place("of_host"));
  }
  links.take_seconds("message", times.message);
  links.take_seconds("collective", times.collective);
  constexpr int kMostBelow = 1 << 16;
  if (links.has("hosts_of_switch")) {
    times.hosts_of_switch = links.count("hosts_of_switch", kMostBelow);
  }
  ZERO_CHECK(times.between_switches == 0 || times.hosts_of_switch > 0,
             "{} is missing, expected with between_switches for example 32",
             links.place("hosts_of_switch"));
}

/// Products reach a part of the peak.
void check_peak(const ClusterFields& fields, const char* key, double peak, double reached) {
  ZERO_CHECK(peak == 0 || peak >= reached,
             "{}: found {:.4g} TFLOP/s, expected at least the {:.4g} TFLOP/s that {} says are "
             "reached",
             fields.place(key), peak / 1e12, reached / 1e12,
             std::string_view(key) == "peak" ? "compute" : "compute_fp32");
}

}  // namespace

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

bool Machine::has_rates(bool half) const {
  return rate(half) > 0 && (devices == 1 || within_host > 0) && (hosts == 1 || between_hosts > 0);
}

double Machine::reached(DType dtype) const {
  const bool half = dtype != DType::fp32;
  return rate(half) > 0 ? rate(half) : half ? times.peak : times.peak_fp32;
}

double Machine::peak(DType dtype) const {
  const double peak = dtype == DType::fp32 ? times.peak_fp32 : times.peak;
  return peak > 0 ? peak : reached(dtype);
}

std::string Machine::text() const {
  return fmt::format(
      "{} x {} of {}{}{}{}", counted(hosts, "host"),
      counted(devices, kind == DeviceKind::cuda ? "GPU" : "rank"),
      both_units(static_cast<double>(memory)), memory_source.empty() ? "" : ", ", memory_source,
      reserve == 0 ? ""
                   : fmt::format(", {} of it kept free", both_units(static_cast<double>(reserve))));
}

std::int64_t usual_reserve(const Machine& machine) {
  constexpr std::int64_t kLeftToNccl = std::int64_t{1} << 30;
  if (machine.kind == DeviceKind::cpu) return 0;
  return cuda::kLeftToLibraries + (machine.world() > 1 ? kLeftToNccl : 0);
}

void take_gpus(Machine& machine, std::string_view text, std::string_view flag) {
  const std::size_t by = text.find('x');
  const bool split = by != std::string_view::npos;
  const bool good = (!split || take_count(text.substr(0, by), kMostHosts, machine.hosts)) &&
                    take_count(split ? text.substr(by + 1) : text, kMostDevices, machine.devices);
  ZERO_CHECK(good,
             "{}: found \"{}\", expected GPUs of one host, such as 8, or hosts x GPUs of a host, "
             "such as 2x8 (at most {} x {})",
             flag, printable_line(text), kMostHosts, kMostDevices);
  check_world(machine, flag);
  machine.kind = DeviceKind::cuda;
  machine.source = flag;
}

Machine machine_of(const json& cluster, const std::string& source) {
  const ClusterFields fields(cluster, source, "",
                             {"hosts", "devices", "kind", "memory", "reserve", "compute",
                              "compute_fp32", "links", "peak", "peak_fp32", "memory_bandwidth",
                              "shares", "submit", "least_time", "cores", "operations", "failures"});
  Machine machine{.source = source};
  fields.require("devices", "8 (of one host)");
  fields.require("memory", "\"80GB\" (of one device)");
  if (fields.has("hosts")) machine.hosts = fields.count("hosts", kMostHosts);
  machine.devices = fields.count("devices", kMostDevices);
  check_world(machine, source);
  if (fields.has("kind")) {
    const std::string kind = fields.text("kind", "\"gpu\" or \"cpu\"");
    ZERO_CHECK(kind == "gpu" || kind == "cpu", "{}: found \"{}\", expected \"gpu\" or \"cpu\"",
               fields.place("kind"), printable_line(kind));
    machine.kind = kind == "gpu" ? DeviceKind::cuda : DeviceKind::cpu;
  }
  machine.memory = bytes_with_unit(fields.text("memory", kBytesExample), fields.place("memory"));
  machine.reserve = fields.has("reserve") ? bytes_or_none(fields.text("reserve", kBytesExample),
                                                          fields.place("reserve"))
                                          : usual_reserve(machine);
  for (const auto& [key, rate] :
       {std::pair{"compute", &machine.compute}, {"compute_fp32", &machine.compute_fp32}}) {
    if (fields.has(key)) *rate = compute_rate(fields.text(key, kRateExample), fields.place(key));
  }
  take_links(machine, fields);
  machine.times.take(fields);
  check_peak(fields, "peak", machine.times.peak, machine.compute);
  check_peak(fields, "peak_fp32", machine.times.peak_fp32, machine.compute_fp32);
  return machine;
}

Machine read_cluster(const std::string& path, std::string_view flag) {
  return machine_of(parse_json_text(read_json_text(path, flag), path), path);
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
          {"reserve", machine.reserve}};
}

}  // namespace zero
