// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/config/checked_value.h"
#include "launch/config/configuration.h"
#include "launch/config/similar_names.h"
#include "launch/plan/machine.h"
#include "launch/process/quantity.h"

namespace zero {
namespace {

using nlohmann::json;

/// A value of a cluster file.
struct ClusterValue {
  std::string expected;  ///< for messages
  /// False if the JSON is of another type or range. `place`: for errors of its text.
  std::function<bool(const json& value, const std::string& place)> take;
};

ClusterValue count_into(int& number, int most) {
  return {fmt::format("a whole number from 1 to {}", most),
          [&number, most](const json& value, const std::string& /*place*/) {
            const bool fits = value.is_number_integer() && value >= 1 && value <= most;
            if (fits) number = value.get<int>();
            return fits;
          }};
}

ClusterValue share_into(double& part) {
  return {"a number above 0, at most 1", [&part](const json& value, const std::string& /*place*/) {
            const bool fits = value.is_number() && value > 0 && value <= 1;
            if (fits) part = value.get<double>();
            return fits;
          }};
}

/// `read` makes the value of a text, and refuses it by its place.
template <typename Value, typename Read>
ClusterValue text_into(Value& target, Read read, std::string expected) {
  return {std::move(expected), [&target, read](const json& value, const std::string& place) {
            if (value.is_string()) target = read(value.get_ref<const std::string&>(), place);
            return value.is_string();
          }};
}

template <typename Value, typename Read>
ClusterValue figure_into(Value& target, Read read, std::string_view example) {
  return text_into(target, read, fmt::format("a text with a unit, such as {}", example));
}

DeviceKind kind_from(std::string_view text, std::string_view place) {
  ZERO_CHECK(text == "gpu" || text == "cpu", "{}: found \"{}\", expected \"gpu\" or \"cpu\"", place,
             printable_line(text));
  return text == "gpu" ? DeviceKind::cuda : DeviceKind::cpu;
}

/// All that a cluster file may say, and where that goes.
struct ClusterKey {
  std::string path;  ///< "links.within_host"
  ClusterValue value;
  bool required = false;  ///< in the object that it is a member of
};

std::vector<ClusterKey> cluster_keys(Machine& machine) {
  MachineTimes& times = machine.times;
  const auto beside = [&machine](const std::string& name, const std::string& /*place*/) {
    return (std::filesystem::path(machine.source).parent_path() / name).string();
  };
  constexpr int kMostCores = 1 << 16;
  std::vector<ClusterKey> keys{
      {"hosts", count_into(machine.hosts, Machine::kMostHosts)},
      {"devices", count_into(machine.devices, Machine::kMostDevices), true},
      {"kind", text_into(machine.kind, kind_from, R"("gpu" or "cpu")")},
      {"memory", figure_into(machine.memory, bytes_with_unit, R"("80GB" (of one device))"), true},
      {"host_memory", figure_into(machine.host_memory, bytes_with_unit, R"("1.5TiB" (of a host))")},
      {"reserve", figure_into(machine.reserve, bytes_or_none, R"("2GiB")")},
      {"compute", figure_into(machine.compute, compute_rate, R"("400TFLOP/s")")},
      {"compute_fp32", figure_into(machine.compute_fp32, compute_rate, R"("50TFLOP/s")")},
      {"peak", figure_into(times.peak, compute_rate, R"("989TFLOP/s")")},
      {"peak_fp32", figure_into(times.peak_fp32, compute_rate, R"("67TFLOP/s")")},
      {"memory_bandwidth", figure_into(times.memory_bandwidth, link_rate, R"("3.35TB/s")")},
      {"shares.products", share_into(times.products)},
      {"shares.attention", share_into(times.attention)},
      {"shares.memory", share_into(times.memory)},
      {"shares.beside_communication", share_into(times.beside_communication)},
      {"shares.polling", share_into(times.polling)},
      {"submit", figure_into(times.submit, seconds_with_unit, R"("5us")")},
      {"least_time", figure_into(times.least_time, seconds_with_unit, R"("5us")")},
      {"cores", count_into(times.cores, kMostCores)},
      {"operations", text_into(times.operations, beside, "the name of a file")},
      {"links.of_host", figure_into(times.host_bandwidth, link_rate, R"("400Gbit/s")")},
      {"links.beside_compute", figure_into(times.beside_compute, link_rate, R"("1Gbit/s")")},
      {"links.hosts_of_switch", count_into(times.hosts_of_switch, Machine::kMostHosts)},
      {"links.message", figure_into(times.message, seconds_with_unit, R"("500ns")")},
      {"links.collective", figure_into(times.collective, seconds_with_unit, R"("8us")")},
      {"failures.between",
       figure_into(times.between_failures, seconds_with_unit, R"("3000h" (of one host))"), true},
      {"failures.save", figure_into(times.save, seconds_with_unit, R"("30s")"), true},
      {"failures.restart", figure_into(times.restart, seconds_with_unit, R"("10min")")}};
  for (const auto& [path, rate, latency] :
       {std::tuple<std::string, double&, double&>{"links.within_host", machine.within_host,
                                                  times.within_host_latency},
        {"links.between_hosts", machine.between_hosts, times.between_hosts_latency},
        {"links.between_switches", times.between_switches, times.between_switches_latency}}) {
    keys.push_back({path, figure_into(rate, link_rate,
                                      R"("300GB/s", or an object with bandwidth and latency)")});
    keys.push_back({path + ".bandwidth", figure_into(rate, link_rate, R"("300GB/s")"), true});
    keys.push_back({path + ".latency", figure_into(latency, seconds_with_unit, R"("5us")")});
  }
  return keys;
}

/// Takes what a cluster file says, key by key.
class ClusterFile {
 public:
  ClusterFile(const std::string& source, std::vector<ClusterKey> keys)
      : source_(source), keys_(std::move(keys)) {}

  /// The value at a path, "" for the whole file. Keys that begin with an underscore are notes.
  void take(const json& value, const std::string& path) const {
    const std::string place = path.empty() ? source_ : source_ + ": " + path;
    const std::vector<std::string> names = members(path);
    const auto own = std::ranges::find(keys_, path, &ClusterKey::path);
    if (own != keys_.end() && (names.empty() || !value.is_object())) {
      ZERO_CHECK(own->value.take(value, place), "{}: found {}, expected {}", place,
                 shown_value(value), own->value.expected);
      return;
    }
    ZERO_CHECK(value.is_object(), "{}: found {}, expected an object with the keys {}", place,
               shown_value(value), fmt::join(names, ", "));
    const std::string before = path.empty() ? "" : path + ".";
    for (const auto& [name, member] : value.items()) {
      ZERO_CHECK(name.starts_with('_') || std::ranges::find(names, name) != names.end(),
                 "{}: there is no key \"{}\"{}; the keys are {}", source_,
                 printable_line(before + name), did_you_mean(name, names), fmt::join(names, ", "));
    }
    for (const std::string& name : names) {
      const auto member = value.find(name);
      if (member != value.end() && !member->is_null()) {
        take(*member, before + name);
        continue;
      }
      const auto missing = std::ranges::find(keys_, before + name, &ClusterKey::path);
      ZERO_CHECK(missing == keys_.end() || !missing->required, "{}: {} is missing, expected {}",
                 source_, missing->path, missing->value.expected);
    }
  }

 private:
  /// Of the object at a path; none if there is no object.
  std::vector<std::string> members(const std::string& path) const {
    const std::size_t begin = path.empty() ? 0 : path.size() + 1;
    std::vector<std::string> names;
    for (const ClusterKey& key : keys_) {
      if (begin > 0 && !key.path.starts_with(path + ".")) continue;
      std::string name = key.path.substr(begin, key.path.find('.', begin) - begin);
      if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
    }
    return names;
  }

  const std::string& source_;
  std::vector<ClusterKey> keys_;
};

/// Products reach a part of the peak. `of`: "" or "_fp32", as the keys end.
void check_peak(const std::string& source, std::string_view of, double peak, double reached) {
  ZERO_CHECK(peak == 0 || peak >= reached,
             "{0}: peak{1}: found {2:.4g} TFLOP/s, expected at least the {3:.4g} TFLOP/s that "
             "compute{1} says are reached",
             source, of, peak / 1e12, reached / 1e12);
}

}  // namespace

Machine machine_of(const json& cluster, const std::string& source) {
  Machine machine{.source = source};
  ClusterFile(source, cluster_keys(machine)).take(cluster, "");
  machine.check_world(source);
  if (cluster.value("reserve", json()).is_null()) machine.reserve = usual_reserve(machine);
  const MachineTimes& times = machine.times;
  ZERO_CHECK(times.between_switches == 0 || times.hosts_of_switch > 0,
             "{}: links.hosts_of_switch is missing, expected with between_switches for example 32",
             source);
  check_peak(source, "", times.peak, machine.compute);
  check_peak(source, "_fp32", times.peak_fp32, machine.compute_fp32);
  return machine;
}

Machine read_cluster(const std::string& path, std::string_view flag) {
  return machine_of(parse_json_text(read_json_text(path, flag), path), path);
}

}  // namespace zero
