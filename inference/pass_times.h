// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace zero {

/// How long passes of a model took, and how their computing grows with their rows.
class PassTimes {
 public:
  /// A pass of `rows` > 0 that took `seconds`, and computed, rather than waited, for `computing` of
  /// them.
  void add(std::int64_t rows, double computing, double seconds);

  std::int64_t passes() const { return passes_; }
  double rows() const { return mean(rows_); }            ///< on average; 0: no pass
  double computing() const { return mean(computing_); }  ///< likewise, seconds
  double seconds() const { return mean(seconds_); }      ///< likewise

  /// The rows of a pass that computes for `computing` seconds: by the straight line through all
  /// passes (least squares) or, where that does not rise, in proportion to the average. Nothing
  /// without passes that compute.
  std::optional<double> rows_for(double computing) const;

 private:
  double mean(double sum) const { return passes_ == 0 ? 0 : sum / static_cast<double>(passes_); }

  std::int64_t passes_ = 0;
  // Sums over passes.
  double rows_ = 0;
  double computing_ = 0;
  double seconds_ = 0;
  double squares_ = 0;   // of rows
  double products_ = 0;  // of rows and computing
};

}  // namespace zero
