// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/engine.h"
#include "launch/telemetry/machine_limits.h"
#include "optim/optimizer.h"

namespace zero {
namespace {

std::string or_dash(double value, double known) {
  return known > 0 ? fmt::format("{:.1f}", value) : "-";
}

}  // namespace

double ProfileEntry::least_seconds(const MachineLimits& limits) const {
  const double arithmetic = limits.products > 0 ? flop / limits.products : 0;
  const double traffic = limits.memory > 0 ? bytes / limits.memory : 0;
  return std::max(arithmetic, traffic);
}

double ProfileEntry::share(const MachineLimits& limits) const {
  return seconds > 0 ? least_seconds(limits) / seconds : 0;
}

ProfileEntry& Profile::entry(std::string_view name) {
  const auto found = entries_.find(name);
  if (found != entries_.end()) return found->second;
  return entries_.emplace(name, ProfileEntry{.name = std::string(name)}).first->second;
}

void Profile::add(std::string_view name, double seconds, double flop, double bytes) {
  ProfileEntry& to = entry(name);
  ++to.calls;
  to.seconds += seconds;
  to.flop += flop;
  to.bytes += bytes;
}

void Profile::add_seconds(std::string_view name, double seconds) { entry(name).seconds += seconds; }

void Profile::add_bytes(std::string_view name, double bytes) { entry(name).bytes += bytes; }

void Profile::add_step(double seconds) {
  ++steps_;
  step_seconds_ += seconds;
}

std::vector<ProfileEntry> Profile::entries() const {
  std::vector<ProfileEntry> sorted;
  for (const auto& [name, entry] : entries_) {
    if (entry.calls > 0) sorted.push_back(entry);
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return sorted;
}

std::string Profile::table(const MachineLimits& limits) const {
  std::string text;
  const auto out = std::back_inserter(text);
  const double steps = static_cast<double>(std::max<std::int64_t>(1, steps_));
  fmt::format_to(out,
                 "profile of {} step(s) of {:.1f} ms; limits: products {:.0f} GFLOP/s, memory "
                 "{:.1f} GB/s\n{:<36} {:>6} {:>9} {:>6} {:>9} {:>9} {:>8} {:>8} {:>8}\n",
                 steps_, 1e3 * step_seconds_ / steps, limits.products * 1e-9, limits.memory * 1e-9,
                 "work", "calls", "ms", "% step", "GFLOP", "MB", "GFLOP/s", "GB/s", "% limit");
  double covered = 0;
  bool beyond = false;
  for (const ProfileEntry& entry : entries()) {
    covered += entry.seconds;
    beyond = beyond || entry.share(limits) > 1;
    fmt::format_to(out, "{:<36} {:>6.0f} {:>9.2f} {:>6.1f} {:>9} {:>9} {:>8} {:>8} {:>8}\n",
                   entry.name, static_cast<double>(entry.calls) / steps,
                   1e3 * entry.seconds / steps, 100 * entry.seconds / step_seconds_,
                   or_dash(entry.flop * 1e-9 / steps, entry.flop),
                   or_dash(entry.bytes * 1e-6 / steps, entry.bytes),
                   or_dash(entry.flop * 1e-9 / entry.seconds, entry.flop),
                   or_dash(entry.bytes * 1e-9 / entry.seconds, entry.bytes),
                   or_dash(100 * entry.share(limits), entry.least_seconds(limits)));
  }
  fmt::format_to(out, "{:<36} {:>6} {:>9.2f} {:>6.1f}", "between them", "",
                 1e3 * (step_seconds_ - covered) / steps,
                 100 * (step_seconds_ - covered) / step_seconds_);
  if (beyond) {
    text +=
        "\nover 100 % of a limit: operands were still in caches, or other programs held the limits "
        "down while they were measured, after the last step";
  }
  return text;
}

nlohmann::ordered_json Profile::json(const MachineLimits& limits) const {
  nlohmann::ordered_json work = nlohmann::ordered_json::array();
  for (const ProfileEntry& entry : entries()) {
    work.push_back({{"name", entry.name},
                    {"calls", entry.calls},
                    {"seconds", entry.seconds},
                    {"flop", entry.flop},
                    {"bytes", entry.bytes},
                    {"share_of_limit", entry.share(limits)}});
  }
  return {{"steps", steps_},
          {"seconds", step_seconds_},
          {"product_flop_per_second", limits.products},
          {"memory_bytes_per_second", limits.memory},
          {"work", std::move(work)}};
}

void add_update_bytes(Profile& profile, Engine& engine) {
  const EngineOptions& options = engine.options();
  const std::int64_t all = engine.parameter_count() + engine.padding_count();
  const std::int64_t owned =
      options.stage == 0 ? all : all / engine.mesh().axis(Axis::shard).size();
  const int moments = make_optimizer(options.optimizer, engine.device())->moments();
  const std::int64_t gradient = size_of(options.gradient.value_or(options.compute));
  const std::int64_t copy = options.compute == DType::fp32 ? 0 : size_of(options.compute);
  const std::int64_t bytes = owned * (8 + 8 * moments + gradient + copy) * profile.steps();
  profile.add_bytes(name_of(options.optimizer.kind), static_cast<double>(bytes));
}

std::string collectives_table(const Profile& collectives, std::int64_t steps) {
  const std::vector<ProfileEntry> entries = collectives.entries();
  if (entries.empty()) return "";
  std::string text = fmt::format("{:<36} {:>6} {:>9} {:>9} {:>8}", "beside it, on the wire",
                                 "calls", "ms", "MB", "GB/s");
  const double per = static_cast<double>(std::max<std::int64_t>(1, steps));
  for (const ProfileEntry& entry : entries) {
    fmt::format_to(std::back_inserter(text), "\n{:<36} {:>6.0f} {:>9.2f} {:>9.1f} {:>8.2f}",
                   entry.name, static_cast<double>(entry.calls) / per, 1e3 * entry.seconds / per,
                   entry.bytes * 1e-6 / per, entry.bytes * 1e-9 / entry.seconds);
  }
  return text;
}

nlohmann::ordered_json collectives_json(const Profile& collectives) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ProfileEntry& entry : collectives.entries()) {
    list.push_back({{"name", entry.name},
                    {"calls", entry.calls},
                    {"seconds", entry.seconds},
                    {"bytes", entry.bytes}});
  }
  return list;
}

}  // namespace zero
