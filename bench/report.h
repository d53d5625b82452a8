// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace zero::bench {

/// One measured rate and the physical limit to compare it with.
struct Row {
  std::string section{};
  std::string name{};
  int ranks = 1;
  std::int64_t bytes = 0;  ///< moved or held by one rank; 0 if irrelevant
  std::string dtype{};     ///< empty if irrelevant
  double value = 0;        ///< the median of the repeats
  double best = 0;         ///< the best of the repeats
  std::string unit{};
  double limit = 0;  ///< in `unit`, measured in the same run; 0: none known

  double ratio() const { return limit > 0 ? value / limit : 0; }
};

/// The measurements of one run of the program.
class Report {
 public:
  /// Receives text for people, in whole lines, as it is produced, and the report so far.
  using Print = std::function<void(const std::string& lines, const Report& all)>;

  Report() = default;
  /// Prints each row and each note at once, with a heading before the first row, so that an
  /// interrupted run has printed its measurements.
  explicit Report(Print print) : print_(std::move(print)) {}

  void add(Row row);
  /// A line beside the rows: a measurement that was not possible, and why.
  void note(const std::string& text);
  const std::vector<Row>& rows() const { return rows_; }

  /// The rows as a JSON list of objects with Row's field names, and `ratio`; null if unknown.
  std::string json() const;

 private:
  Print print_{};
  std::vector<Row> rows_{};
};

/// Writes `text` to `path`; throws zero::Error naming the file on failure.
void write_file(const std::string& path, const std::string& text);

}  // namespace zero::bench
