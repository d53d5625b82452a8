// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/machine_times.h"

#include <filesystem>
#include <utility>

#include "launch/plan/cluster_fields.h"
#include "launch/process/quantity.h"

namespace zero {

void MachineTimes::take(const ClusterFields& fields) {
  constexpr int kMostCores = 1 << 16;
  for (const auto& [key, rate] : {std::pair{"peak", &peak}, {"peak_fp32", &peak_fp32}}) {
    if (!fields.has(key)) continue;
    *rate = compute_rate(fields.text(key, "a text such as \"989TFLOP/s\""), fields.place(key));
  }
  if (fields.has("memory_bandwidth")) {
    memory_bandwidth = link_rate(fields.text("memory_bandwidth", "a text such as \"3.35TB/s\""),
                                 fields.place("memory_bandwidth"));
  }
  if (fields.has("shares")) {
    const ClusterFields shares =
        fields.section("shares", {"products", "attention", "memory", "beside_communication"});
    shares.take_share("products", products);
    shares.take_share("attention", attention);
    shares.take_share("memory", memory);
    shares.take_share("beside_communication", beside_communication);
  }
  fields.take_seconds("submit", submit);
  fields.take_seconds("least_time", least_time);
  if (fields.has("cores")) cores = fields.count("cores", kMostCores);
  if (fields.has("operations")) {
    const auto folder = std::filesystem::path(fields.source()).parent_path();
    operations = folder / fields.text("operations", "the name of a file");
  }
  if (!fields.has("failures")) return;
  const ClusterFields failures = fields.section("failures", {"between", "save", "restart"});
  failures.require("between", "\"3000h\" (of one host)");
  failures.require("save", "\"30s\"");
  failures.take_seconds("between", between_failures);
  failures.take_seconds("save", save);
  failures.take_seconds("restart", restart);
}

}  // namespace zero
