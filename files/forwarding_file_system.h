// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/file_system.h"

namespace zero::files {

/// Another file system, to which each call goes on: the base of those that change some calls. As
/// thread-safe as the other.
class ForwardingFileSystem : public FileSystem {
 public:
  /// `inner` must outlive this.
  explicit ForwardingFileSystem(FileSystem& inner) : inner_(inner) {}

  std::unique_ptr<OutputFile> create(const std::string& path, std::int64_t bytes) override;
  std::unique_ptr<OutputFile> open_write(const std::string& path) override;
  std::unique_ptr<InputFile> open_read(const std::string& path) override;
  ScratchFile create_scratch(const std::string& folder, std::int64_t bytes) override;
  PathKind kind_of(const std::string& path) override;
  bool is_link(const std::string& path) override;
  std::vector<std::string> list(const std::string& folder) override;
  void make_folder(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove_file(const std::string& path) override;
  void remove_folder(const std::string& path) override;
  std::unique_ptr<OpenFolder> open_folder(const std::string& path) override;
  void sync_folder(const std::string& path) override;
  std::int64_t free_bytes(const std::string& folder) override;
  std::unique_ptr<TransferQueue> queue(std::span<std::byte> memory,
                                       const QueueOptions& options) override;
  std::string io_description() override;

 protected:
  FileSystem& inner() const { return inner_; }
  /// Asked before each function with a path, by its name: the path that the inner file system gets
  /// (of rename(), the first). What this throws, the function throws.
  virtual std::string inner_path(std::string_view /*function*/, const std::string& path) const {
    return path;
  }

 private:
  FileSystem& inner_;
};

}  // namespace zero::files
