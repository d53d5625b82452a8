// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/descriptor.h"

namespace zero {

/// A file of JSON lines. Each line reaches the file whole, at once: an interrupted run leaves whole
/// lines.
class RunLog {
 public:
  /// Replaces the file; throws zero::Error if it cannot be written.
  explicit RunLog(const std::string& path);

  /// Fields keep the order they were given in.
  void write(const nlohmann::ordered_json& line);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Descriptor file_;
};

/// Throws zero::Error naming `key` unless a file can be made at `path`: its folder is there and may
/// be written to.
void check_writable(const std::string& path, const std::string& key);

}  // namespace zero
