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
  return inner_.create(path, bytes);
}

files::ScratchFile FullDisk::create_scratch(const std::string& folder, std::int64_t bytes) {
  need_room(folder, "create a file in it");
  return inner_.create_scratch(folder, bytes);
}

void FullDisk::make_folder(const std::string& path) {
  need_room(path, "create");
  inner_.make_folder(path);
}

std::int64_t FullDisk::free_bytes(const std::string& folder) {
  return is_full() ? 0 : inner_.free_bytes(folder);
}

std::unique_ptr<files::OutputFile> FullDisk::open_write(const std::string& path) {
  return inner_.open_write(path);
}

std::unique_ptr<files::InputFile> FullDisk::open_read(const std::string& path) {
  return inner_.open_read(path);
}

files::PathKind FullDisk::kind_of(const std::string& path) { return inner_.kind_of(path); }

bool FullDisk::is_link(const std::string& path) { return inner_.is_link(path); }

std::vector<std::string> FullDisk::list(const std::string& folder) { return inner_.list(folder); }

void FullDisk::rename(const std::string& from, const std::string& to) { inner_.rename(from, to); }

void FullDisk::remove_file(const std::string& path) { inner_.remove_file(path); }

void FullDisk::remove_folder(const std::string& path) { inner_.remove_folder(path); }

std::unique_ptr<files::OpenFolder> FullDisk::open_folder(const std::string& path) {
  return inner_.open_folder(path);
}

void FullDisk::sync_folder(const std::string& path) { inner_.sync_folder(path); }

std::unique_ptr<files::TransferQueue> FullDisk::queue(std::span<std::byte> memory,
                                                      const files::QueueOptions& options) {
  return inner_.queue(memory, options);
}

std::string FullDisk::io_description() { return inner_.io_description(); }

}  // namespace zero
