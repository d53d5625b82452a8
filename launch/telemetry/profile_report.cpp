// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace zero {

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
