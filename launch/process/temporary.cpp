// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/temporary.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/descriptor.h"
#include "base/error.h"

namespace zero {
namespace {

/// A name for mkstemp(). Not std::filesystem's folder: it names no way out if TMPDIR is none.
std::string name_to_fill(std::string_view name) {
  const char* const folder = std::getenv("TMPDIR");
  return std::string(folder == nullptr || *folder == 0 ? "/tmp" : folder) + "/" +
         std::string(name) + "_XXXXXX";
}

void check_made(bool made, const std::string& path) {
  ZERO_CHECK(made, "{}: cannot be made: {}; set TMPDIR to a folder that can be written to", path,
             std::strerror(errno));
}

}  // namespace

std::string make_temporary_file(std::string_view name) {
  std::string path = name_to_fill(name);
  const Descriptor file(::mkstemp(path.data()));
  check_made(file.get() >= 0, path);
  return path;
}

std::string make_temporary_folder(std::string_view name) {
  std::string path = name_to_fill(name);
  check_made(::mkdtemp(path.data()) != nullptr, path);
  return path;
}

}  // namespace zero
