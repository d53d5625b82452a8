// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "scratch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace zero::testing {

Scratch::Scratch() {
  std::string name = (std::filesystem::temp_directory_path() / "zero_checkpoint_XXXXXX").string();
  ZERO_CHECK(::mkdtemp(name.data()) != nullptr, "cannot make a directory like {}", name);
  directory_ = name;
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

std::vector<std::string> Scratch::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

FileSizeLimit::FileSizeLimit(std::int64_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
  ::getrlimit(RLIMIT_FSIZE, &before_);
  rlimit limit = before_;
  limit.rlim_cur = static_cast<rlim_t>(bytes);
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

FileSizeLimit::~FileSizeLimit() {
  ::setrlimit(RLIMIT_FSIZE, &before_);
  std::signal(SIGXFSZ, handler_);
}

std::string recorded(std::string_view name) {
  return (std::filesystem::path(ZERO_RECORDED_FILES) / name).string();
}

std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  ZERO_CHECK(file.good(), "{}: cannot open", path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

void write_bytes(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  ZERO_CHECK(file.good(), "{}: cannot write", path);
}

std::string file_of(std::string_view json, std::string_view data) {
  const auto length = static_cast<std::uint64_t>(json.size());
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes.append(json).append(data);
}

std::vector<std::byte> bytes_of(const SafetensorsReader& file, const FileTensor& tensor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.end - tensor.begin));
  file.read(tensor, 0, bytes);
  return bytes;
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace zero::testing
