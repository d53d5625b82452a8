// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/run_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace zero {

RunLog::RunLog(const std::string& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  ZERO_CHECK(file_.get() >= 0,
             "run.log: cannot write {}: {}; give the path of a file you may write to", path,
             std::strerror(errno));
}

void RunLog::write(const nlohmann::ordered_json& line) {
  const std::string text = line.dump() + "\n";
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t result = ::write(file_.get(), text.data() + done, text.size() - done);
    if (result < 0 && errno == EINTR) continue;
    ZERO_CHECK(result > 0, "run.log: cannot write {}: {}; free some space", path_,
               std::strerror(errno));
    done += static_cast<std::size_t>(result);
  }
}

void check_writable(const std::string& path, const std::string& key) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::string where = folder.empty() ? "." : folder.string();
  std::error_code error;
  ZERO_CHECK(std::filesystem::is_directory(where, error),
             "{}: the folder {} of {} does not exist; make it first", key, where, path);
  ZERO_CHECK(::access(where.c_str(), W_OK) == 0, "{}: the folder {} cannot be written to: {}", key,
             where, std::strerror(errno));
  ZERO_CHECK(!std::filesystem::is_directory(path, error),
             "{}: {} is a folder; give the path of a file", key, path);
}

}  // namespace zero
