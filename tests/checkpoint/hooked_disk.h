// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "files/forwarding_file_system.h"

namespace zero::testing {

/// The disk of this machine, with a hook before every call, which may throw, as a disk that fails
/// does, or take its time. Used by the threads of one rank.
class HookedDisk final : public files::ForwardingFileSystem {
 public:
  /// `call`: the name of the function; "write", "sync" and "read" of files, "queue write" and
  /// "queue read" of queues.
  using Hook = std::function<void(const std::string& call, const std::string& path)>;
  explicit HookedDisk(Hook hook) : ForwardingFileSystem(files::disk()), hook_(std::move(hook)) {}

  /// The folder `from` is another one for this rank.
  void move_folder(const std::string& from, const std::string& to) { from_ = from, to_ = to; }
  /// Transfers of queues are over before the call that starts them returns.
  void transfer_at_once() { at_once_ = true; }
  bool transfers_at_once() const { return at_once_; }
  void before(const std::string& call, const std::string& path) const { hook_(call, path); }

  std::unique_ptr<files::OutputFile> create(const std::string& path, std::int64_t bytes) override;
  std::unique_ptr<files::OutputFile> open_write(const std::string& path) override;
  std::unique_ptr<files::InputFile> open_read(const std::string& path) override;
  files::ScratchFile create_scratch(const std::string& folder, std::int64_t bytes) override;
  bool is_link(const std::string& path) override { return inner().is_link(path); }
  /// By paths, so that the hook hears of what is done in it.
  std::unique_ptr<files::OpenFolder> open_folder(const std::string& path) override {
    return FileSystem::open_folder(path);
  }
  std::unique_ptr<files::TransferQueue> queue(std::span<std::byte> memory,
                                              const files::QueueOptions& options) override;

 private:
  std::string inner_path(std::string_view call, const std::string& path) const override;

  Hook hook_;
  std::string from_;
  std::string to_;
  bool at_once_ = false;
};

/// Counts the calls of each kind, and lets one of them fail.
class Faults {
 public:
  explicit Faults(std::string reason) : reason_(std::move(reason)) {}
  /// Call number `number`, from 0, of those named `call` fails.
  void fail_at(const std::string& call, int number) { call_ = call, number_ = number; }
  /// The hook.
  void operator()(const std::string& call, const std::string& path);
  std::map<std::string, int> calls() const;
  bool happened() const;

 private:
  std::string reason_;
  std::string call_;
  int number_ = -1;
  mutable std::mutex mutex_;
  std::map<std::string, int> calls_;
  bool happened_ = false;
};

}  // namespace zero::testing
