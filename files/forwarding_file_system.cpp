// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "files/forwarding_file_system.h"

namespace zero::files {

std::unique_ptr<OutputFile> ForwardingFileSystem::create(const std::string& path,
                                                         std::int64_t bytes) {
  return inner_.create(inner_path("create", path), bytes);
}

std::unique_ptr<OutputFile> ForwardingFileSystem::open_write(const std::string& path) {
  return inner_.open_write(inner_path("open_write", path));
}

std::unique_ptr<InputFile> ForwardingFileSystem::open_read(const std::string& path) {
  return inner_.open_read(inner_path("open_read", path));
}

ScratchFile ForwardingFileSystem::create_scratch(const std::string& folder, std::int64_t bytes) {
  return inner_.create_scratch(inner_path("create_scratch", folder), bytes);
}

PathKind ForwardingFileSystem::kind_of(const std::string& path) {
  return inner_.kind_of(inner_path("kind_of", path));
}

bool ForwardingFileSystem::is_link(const std::string& path) {
  return inner_.is_link(inner_path("is_link", path));
}

std::vector<std::string> ForwardingFileSystem::list(const std::string& folder) {
  return inner_.list(inner_path("list", folder));
}

void ForwardingFileSystem::make_folder(const std::string& path) {
  inner_.make_folder(inner_path("make_folder", path));
}

void ForwardingFileSystem::rename(const std::string& from, const std::string& to) {
  inner_.rename(inner_path("rename", from), to);
}

void ForwardingFileSystem::remove_file(const std::string& path) {
  inner_.remove_file(inner_path("remove_file", path));
}

void ForwardingFileSystem::remove_folder(const std::string& path) {
  inner_.remove_folder(inner_path("remove_folder", path));
}

std::unique_ptr<OpenFolder> ForwardingFileSystem::open_folder(const std::string& path) {
  return inner_.open_folder(inner_path("open_folder", path));
}

void ForwardingFileSystem::sync_folder(const std::string& path) {
  inner_.sync_folder(inner_path("sync_folder", path));
}

std::int64_t ForwardingFileSystem::free_bytes(const std::string& folder) {
  return inner_.free_bytes(inner_path("free_bytes", folder));
}

std::unique_ptr<TransferQueue> ForwardingFileSystem::queue(std::span<std::byte> memory,
                                                           const QueueOptions& options) {
  return inner_.queue(memory, options);
}

std::string ForwardingFileSystem::io_description() { return inner_.io_description(); }

}  // namespace zero::files
