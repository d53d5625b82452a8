// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "files/forwarding_file_system.h"

namespace zero {

/// Another file system that can be made to look full: then no file or folder can be made, as where
/// the space of a file is reserved when it is made. Files that are there are read and written on.
/// Thread-safe.
class FullDisk final : public files::ForwardingFileSystem {
 public:
  /// `inner` must outlive this.
  explicit FullDisk(files::FileSystem& inner) : ForwardingFileSystem(inner) {}

  using Clock = std::chrono::steady_clock;
  /// The disk is full until then; time_point::max(): for good.
  void fill_until(Clock::time_point end) { full_until_ = end.time_since_epoch().count(); }

  std::unique_ptr<files::OutputFile> create(const std::string& path, std::int64_t bytes) override;
  files::ScratchFile create_scratch(const std::string& folder, std::int64_t bytes) override;
  void make_folder(const std::string& path) override;
  std::int64_t free_bytes(const std::string& folder) override;

 private:
  bool is_full() const { return Clock::now().time_since_epoch().count() < full_until_; }
  void need_room(const std::string& path, const char* what) const;

  std::atomic<Clock::rep> full_until_{Clock::time_point::min().time_since_epoch().count()};
};

}  // namespace zero
