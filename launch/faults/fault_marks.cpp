// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/fault_marks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/whole_number.h"
#include "launch/process/open_files.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_marks(const std::string& path, std::string_view what,
                               std::string_view why) {
  fail("run.fault_marks: {}: {}: {}; give a folder that this process may write to", path, what,
       why);
}

}  // namespace

FaultMarks::FaultMarks(std::string folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) refuse_marks(folder_, "cannot be made", error.message());
  if (!fs::is_directory(folder_, error)) refuse_marks(folder_, "is no folder", "it is a file");
}

bool FaultMarks::has(const std::string& name) const {
  std::error_code ignored;
  return !folder_.empty() && fs::exists(path(name), ignored);
}

std::string FaultMarks::path(const std::string& name) const {
  return (fs::path(folder_) / name).string();
}

bool FaultMarks::leave(const std::string& name, const std::string& text) const {
  if (folder_.empty()) return true;
  const std::string path = this->path(name);
  const Descriptor file(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644));
  if (file.get() < 0 && errno == EEXIST) return false;
  if (file.get() < 0) refuse_marks(path, "cannot be made", std::strerror(errno));
  write_whole(file.get(), text + "\n", "run.fault_marks", path);
  // A mark must outlive the host's power, as checkpoints do.
  if (::fsync(file.get()) != 0) refuse_marks(path, "cannot be written", std::strerror(errno));
  const Descriptor folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) ::fsync(folder.get());
  return true;
}

std::int64_t FaultMarks::next_number(const std::string& prefix) const {
  std::int64_t next = 0;
  if (folder_.empty()) return next;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix + "_")) continue;
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() - 1;
    const auto number =
        whole_number<std::int64_t>(std::string_view(name).substr(prefix.size() + 1), 0, kMost);
    if (number) next = std::max(next, *number + 1);
  }
  return next;
}

}  // namespace zero
