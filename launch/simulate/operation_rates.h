// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/json_fields.h"
#include "ops/op_listener.h"

namespace zero {

/// Rates of operations and other work, as measured on one device. Between measured sizes the rate
/// is interpolated over the logarithm of a call's bytes, and beyond them it is that of the nearest:
/// sizes give a rate, never a time.
class OperationRates {
 public:
  OperationRates() = default;
  /// The rows that `zero_bench ops --json` writes, the profile of a run, or a run's log with one
  /// (run.profile). Throws zero::Error naming file, key, found and expected.
  static OperationRates read(const std::string& path);
  static OperationRates of(const nlohmann::json& table, const std::string& source);

  /// Seconds of one call, in a run that computes in `dtype`; nothing if no such work was measured.
  std::optional<double> seconds(const OpCost& cost, DType dtype) const;
  bool empty() const { return rates_.empty(); }

 private:
  struct Rate {
    double per_second = 0;
    bool of_flop = false;  ///< FLOP/s; else bytes/s
  };
  /// By bytes of a call.
  using Sizes = std::map<double, Rate>;

  void add_rows(std::vector<JsonFields> rows);
  void add_profile(std::vector<JsonFields> work);

  // By "bf16 linear_forward", " adamw": any dtype.
  std::map<std::string, Sizes, std::less<>> rates_;
};

}  // namespace zero
