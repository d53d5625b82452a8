// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/descriptor.h"

namespace zero {

/// A file of JSON lines. Each line is written whole and immediately: an interrupted run leaves only
/// whole lines.
class RunLog {
 public:
  /// Replaces the file; throws zero::Error if the file cannot be written.
  explicit RunLog(const std::string& path);

  /// Fields keep their order.
  void write(const nlohmann::ordered_json& line);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Descriptor file_;
};

/// Throws zero::Error naming `key` unless a file can be created at `path`: the folder must exist
/// and be writable.
void check_writable(const std::string& path, const std::string& key);

}  // namespace zero
