// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/full_disk.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace zero {

void FullDisk::need_room(const std::string& path, const char* what) const {
  ZERO_CHECK(!is_full(), "{}: cannot {}: {} (run.faults: disk_full)", path, what,
             std::strerror(ENOSPC));
}

std::unique_ptr<files::OutputFile> FullDisk::create(const std::string& path, std::int64_t bytes) {
  need_room(path, "create");
  return ForwardingFileSystem::create(path, bytes);
}

files::ScratchFile FullDisk::create_scratch(const std::string& folder, std::int64_t bytes) {
  need_room(folder, "create a file in it");
  return ForwardingFileSystem::create_scratch(folder, bytes);
}

void FullDisk::make_folder(const std::string& path) {
  need_room(path, "create");
  ForwardingFileSystem::make_folder(path);
}

std::int64_t FullDisk::free_bytes(const std::string& folder) {
  return is_full() ? 0 : ForwardingFileSystem::free_bytes(folder);
}

}  // namespace zero
