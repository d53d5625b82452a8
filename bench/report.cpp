// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace zero::bench {
namespace {

std::string size_text(std::int64_t bytes) {
  if (bytes == 0) return "";
  if (bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.0f} KiB", static_cast<double>(bytes) / (1 << 10));
  return fmt::format("{} B", bytes);
}

std::string head() {
  return fmt::format("{:<12} {:<34} {:>5} {:>10} {:>5} {:>10} {:>10} {:<8} {:>10} {:>6}\n",
                     "section", "name", "ranks", "bytes", "dtype", "median", "best", "unit",
                     "limit", "ratio");
}

std::string line(const Row& row) {
  return fmt::format("{:<12} {:<34} {:>5} {:>10} {:>5} {:>10.2f} {:>10.2f} {:<8} {:>10} {:>6}\n",
                     row.section, row.name, row.ranks, size_text(row.bytes), row.dtype, row.value,
                     row.best, row.unit, row.limit > 0 ? fmt::format("{:.2f}", row.limit) : "-",
                     row.limit > 0 ? fmt::format("{:.2f}", row.ratio()) : "-");
}

}  // namespace

void Report::add(Row row) {
  rows_.push_back(std::move(row));
  if (!print_) return;
  print_((rows_.size() == 1 ? head() : "") + line(rows_.back()), *this);
}

void Report::note(const std::string& text) {
  if (print_) print_(text + "\n", *this);
}

std::string Report::json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Row& row : rows_) {
    nlohmann::ordered_json object{
        {"section", row.section}, {"name", row.name},   {"ranks", row.ranks}, {"bytes", row.bytes},
        {"dtype", nullptr},       {"value", row.value}, {"best", row.best},   {"unit", row.unit},
        {"limit", nullptr},       {"ratio", nullptr}};
    if (!row.dtype.empty()) object["dtype"] = row.dtype;
    if (row.limit > 0) {
      object["limit"] = row.limit;
      object["ratio"] = row.ratio();
    }
    list.push_back(std::move(object));
  }
  return list.dump(2) + "\n";
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  ZERO_CHECK(file.good(), "cannot write {}: {}; give a writable file to --json", path,
             std::strerror(errno));
}

}  // namespace zero::bench
