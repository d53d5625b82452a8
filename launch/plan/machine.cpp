// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/config/checked_value.h"
#include "launch/config/configuration.h"
#include "launch/config/similar_names.h"
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

/// The members of one object of a cluster file.
class ClusterFields {
 public:
  ClusterFields(const json& object, std::string source, std::string section,
                std::vector<std::string> keys)
      : object_(object), source_(std::move(source)), section_(std::move(section)) {
    ZERO_CHECK(object.is_object(), "{}: {}found {}, expected an object with the keys {}", source_,
               section_.empty() ? "" : section_ + ": ", shown_value(object), fmt::join(keys, ", "));
    for (const auto& [key, value] : object.items()) {
      if (std::ranges::find(keys, key) != keys.end() || key.starts_with('_')) continue;
      const std::string near = nearest_name(key, keys);
      fail("{}: there is no key \"{}\"{}; the keys are {}", source_, printable_line(joined(key)),
           near.empty() ? "" : ": did you mean \"" + near + "\"?", fmt::join(keys, ", "));
    }
  }

  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  const json& object(const char* key) const { return object_.at(key); }
  std::string place(std::string_view key) const {
    return fmt::format("{}: {}", source_, joined(key));
  }
  /// The text of a key that is there.
  std::string text(const char* key, std::string_view expected) const {
    const json& value = object_.at(key);
    ZERO_CHECK(value.is_string(), "{}: found {}, expected {}", place(key), shown_value(value),
               expected);
    return value.get<std::string>();
  }
  int count(const char* key, int most) const {
    const json& value = object_.at(key);
    const bool fits = value.is_number_integer() && value >= 1 && value <= most;
    ZERO_CHECK(fits, "{}: found {}, expected a whole number from 1 to {}", place(key),
               shown_value(value), most);
    return value.get<int>();
  }
  void require(const char* key, std::string_view example) const {
    ZERO_CHECK(has(key), "{} is missing, expected for example {}", place(key), example);
  }

 private:
  std::string joined(std::string_view key) const {
    return section_.empty() ? std::string(key) : fmt::format("{}.{}", section_, key);
  }

  const json& object_;
  std::string source_;
  std::string section_;
};

constexpr std::string_view kBytesExample = "a text with a unit, such as \"80GB\"";
constexpr std::string_view kRateExample = "a text with a unit, such as \"400TFLOP/s\"";
constexpr std::string_view kLinkExample = "a text with a unit, such as \"300GB/s\"";

void take_links(Machine& machine, const ClusterFields& fields, const std::string& source) {
  if (!fields.has("links")) return;
  const ClusterFields links(fields.object("links"), source, "links",
                            {"within_host", "between_hosts"});
  for (const auto& [key, rate] : {std::pair{"within_host", &machine.within_host},
                                  {"between_hosts", &machine.between_hosts}}) {
    if (links.has(key)) *rate = link_rate(links.text(key, kLinkExample), links.place(key));
  }
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
  const ClusterFields fields(
      cluster, source, "",
      {"hosts", "devices", "kind", "memory", "reserve", "compute", "compute_fp32", "links"});
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
  for (const auto& [key, bytes] :
       {std::pair{"memory", &machine.memory}, {"reserve", &machine.reserve}}) {
    if (fields.has(key)) {
      *bytes = bytes_with_unit(fields.text(key, kBytesExample), fields.place(key));
    }
  }
  for (const auto& [key, rate] :
       {std::pair{"compute", &machine.compute}, {"compute_fp32", &machine.compute_fp32}}) {
    if (fields.has(key)) *rate = compute_rate(fields.text(key, kRateExample), fields.place(key));
  }
  take_links(machine, fields, source);
  return machine;
}

Machine read_cluster(const std::string& path) {
  return machine_of(parse_json_text(read_json_text(path, "--cluster"), path), path);
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
