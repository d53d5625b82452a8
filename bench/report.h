// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zero::bench {

/// One measured rate beside the physical limit it can be held against.
struct Row {
  std::string section{};
  std::string name{};
  int ranks = 1;
  std::int64_t bytes = 0;  ///< moved or held by one rank; 0 where it says nothing
  std::string dtype{};     ///< empty where there is none
  double value = 0;        ///< the median of the repeats
  double best = 0;         ///< the best of the repeats
  std::string unit{};
  double limit = 0;  ///< in `unit`, measured in the same run; 0: none known

  double ratio() const { return limit > 0 ? value / limit : 0; }
};

/// What a run of the program has measured.
class Report {
 public:
  void add(Row row) { rows_.push_back(std::move(row)); }
  /// A line beside the table: what could not be measured, and why.
  void note(std::string text) { notes_.push_back(std::move(text)); }
  const std::vector<Row>& rows() const { return rows_; }

  /// The rows for people, then the notes.
  std::string table() const;
  /// The rows as a JSON list of objects with Row's field names, and `ratio`; null where unknown.
  std::string json() const;

 private:
  std::vector<Row> rows_;
  std::vector<std::string> notes_;
};

/// Writes `text` to `path`; throws zero::Error naming the file when it cannot.
void write_file(const std::string& path, const std::string& text);

}  // namespace zero::bench
