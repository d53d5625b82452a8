// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/descriptor.h"
#include "base/error.h"

namespace zero {

NewFile::NewFile(std::string path) : path_(std::move(path)) {
  ::unlink(path_.c_str());
  Descriptor file(
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (file.get() >= 0) file_ = ::fdopen(file.get(), "wb");
  ZERO_CHECK(file_ != nullptr, "{}: cannot write: {}; give a folder you may write to", path_,
             std::strerror(errno));
  file.release();
}

NewFile::~NewFile() {
  if (file_ != nullptr) std::fclose(file_);
  if (!renamed_) ::unlink(path_.c_str());
}

void NewFile::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;  // has no address to write from
  ZERO_CHECK(std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size(),
             "{}: cannot write {} bytes: {}; free some space", path_, bytes.size(),
             std::strerror(errno));
}

void NewFile::rewind() {
  ZERO_CHECK(std::fseek(file_, 0, SEEK_SET) == 0, "{}: cannot go back to the header: {}", path_,
             std::strerror(errno));
}

void NewFile::finish() {
  const bool flushed = std::fflush(file_) == 0 && ::fsync(::fileno(file_)) == 0;
  ZERO_CHECK(flushed, "{}: cannot finish writing: {}; free some space", path_,
             std::strerror(errno));
  std::fclose(file_);
  file_ = nullptr;
}

void NewFile::rename(const std::string& path) {
  ZERO_CHECK(std::rename(path_.c_str(), path.c_str()) == 0, "{}: cannot rename {}: {}", path, path_,
             std::strerror(errno));
  renamed_ = true;
}

}  // namespace zero
