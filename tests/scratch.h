// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace zero::testing {

inline std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  ZERO_CHECK(file.good(), "{}: cannot open", path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

inline void write_bytes(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  ZERO_CHECK(file.good(), "{}: cannot write", path);
}

/// An empty folder of one test, removed with all it holds at the end of the scope.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "zero_test_XXXXXX").string();
    ZERO_CHECK(::mkdtemp(name.data()) != nullptr, "cannot make a directory like {}", name);
    path_ = name;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string path(std::string_view name) const { return path_ + "/" + std::string(name); }
  /// Names of what is in it, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  /// Gives the file's path.
  std::string write(std::string_view name, std::string_view bytes) const {
    write_bytes(path(name), bytes);
    return path(name);
  }
  /// A file's bytes; none if there is no such file.
  std::string read(std::string_view name) const {
    return std::filesystem::exists(path(name)) ? file_bytes(path(name)) : "";
  }

 private:
  std::string path_;
};

/// While it lives, this process cannot write behind `bytes` in any file: a write that crosses the
/// limit is cut short, one beyond it fails.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::int64_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(bytes);
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

}  // namespace zero::testing
