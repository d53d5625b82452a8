// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace zero::testing {

/// An empty directory of one test, gone with all it holds at the end.
class Scratch {
 public:
  Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();
  std::string path(std::string_view name) const { return (directory_ / name).string(); }
  std::string directory() const { return directory_.string(); }
  /// Names of what is in it, sorted.
  std::vector<std::string> names() const;

 private:
  std::filesystem::path directory_;
};

/// While it lives, this process cannot write behind `bytes` in any file: a write that crosses the
/// limit is cut short, one beyond it fails.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::int64_t bytes);
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit();

 private:
  rlimit before_{};
  void (*handler_)(int);
};

/// Path of a recorded file beside the tests.
std::string recorded(std::string_view name);
std::string file_bytes(const std::string& path);
void write_bytes(const std::string& path, std::string_view bytes);
/// A safetensors file of this JSON text and data, header length included.
std::string file_of(std::string_view json, std::string_view data);
/// The whole of a tensor of any type.
std::vector<std::byte> bytes_of(const SafetensorsReader& file, const FileTensor& tensor);
/// The message of the zero::Error that `body` throws; "" when it throws none.
std::string error_of(const std::function<void()>& body);

}  // namespace zero::testing
