// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "files/file_system.h"

namespace zero::testing {

/// A change of files and folders, or a sync that makes earlier changes durable. Nodes are files and
/// folders whatever they are called; node 0 is the root.
struct Change {
  enum class Kind : std::uint8_t {
    link,         ///< `name` in `folder` is `node`, a new one
    unlink,       ///< `name` in `folder` is gone
    rename,       ///< `name` in `folder` is called `to`
    resize,       ///< file `node` has `offset` bytes
    write,        ///< `data` at `offset` of file `node`
    sync_file,    ///< makes resizes and writes of `node` durable
    sync_folder,  ///< makes the entries of `folder` durable
  };
  Kind kind = Kind::link;
  std::size_t node = 0;
  std::size_t folder = 0;
  std::string name{};
  std::string to{};
  std::int64_t offset = 0;
  std::string data{};
  bool makes_folder = false;

  /// Whether this is a sync that makes `earlier` durable.
  bool covers(const Change& earlier) const;
  bool is_sync() const { return kind == Kind::sync_file || kind == Kind::sync_folder; }
};

/// Files and folders in memory.
class Tree {
 public:
  struct Node {
    bool folder = false;
    std::map<std::string, std::size_t> entries{};
    std::string data{};
  };

  Tree() : nodes_{{.folder = true}} {}
  /// Does nothing where an earlier change that was left out would be needed.
  void apply(const Change& change);
  /// What is left of a change that never reaches the disk: a new file or folder without a name,
  /// which a later rename may still give one.
  void lose(const Change& change);
  /// Whether two nodes came to have one name, of which the first is lost: no file system promises
  /// which.
  bool collided() const { return collided_; }
  /// The node at `path`, or none.
  const std::size_t* find(const std::string& path) const;
  const Node& at(std::size_t node) const { return nodes_.at(node); }
  std::size_t size() const { return nodes_.size(); }
  /// The content of each file below the folder `path`, by path from there. Folders end with '/'.
  std::map<std::string, std::string> contents(const std::string& path) const;
  /// Replaces the content of a file.
  void set(const std::string& path, std::string data);

 private:
  Node& node(std::size_t index);
  void link(std::size_t folder, const std::string& name, std::size_t node);

  std::vector<Node> nodes_;
  std::size_t root_ = 0;
  bool collided_ = false;
};

/// A disk in memory that records all changes, and fails on request. Any thread may use it.
class MemoryFiles final : public files::FileSystem {
 public:
  MemoryFiles() = default;
  explicit MemoryFiles(Tree tree) : tree_(std::move(tree)) {}

  const Tree& tree() const { return tree_; }
  Tree& tree() { return tree_; }
  const std::vector<Change>& changes() const { return changes_; }
  /// The `call`-th call from now on that changes or syncs something, from 0, fails; -1: none.
  void fail_at(std::int64_t call) { calls_until_failure_ = call; }
  bool failed() const { return failed_; }
  /// Files whose path begins like this cannot be opened for reading; empty: all can be.
  void refuse_reads(const std::string& start) { unreadable_ = start; }
  /// Transfers of queues happen when they are waited for, and no sooner; each takes that long. As a
  /// disk may as well end them in any other order, one that fills memory fails unless it has that
  /// memory to itself until then.
  void transfer_late(std::chrono::microseconds takes = {}) { late_ = takes; }
  void set_free_bytes(std::int64_t bytes) { free_bytes_ = bytes; }

  std::unique_ptr<files::OutputFile> create(const std::string& path, std::int64_t bytes) override;
  std::unique_ptr<files::OutputFile> open_write(const std::string& path) override;
  std::unique_ptr<files::InputFile> open_read(const std::string& path) override;
  files::ScratchFile create_scratch(const std::string& folder, std::int64_t bytes) override;
  files::PathKind kind_of(const std::string& path) override;
  bool is_link(const std::string& /*path*/) override { return false; }
  std::vector<std::string> list(const std::string& folder) override;
  void make_folder(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove_file(const std::string& path) override;
  void remove_folder(const std::string& path) override;
  void sync_folder(const std::string& path) override;
  std::int64_t free_bytes(const std::string& folder) override;
  std::unique_ptr<files::TransferQueue> queue(std::span<std::byte> memory,
                                              const files::QueueOptions& options) override;
  std::string io_description() override;

 private:
  class Output;
  class Input;
  class Queue;

  /// Applies and records a change of `path`, or fails as asked for.
  void change(const std::string& path, Change change);
  std::size_t node_at(const std::string& path, const std::string& purpose) const;
  std::size_t folder_at(const std::string& path) const;

  std::recursive_mutex mutex_;
  Tree tree_;
  std::vector<Change> changes_;
  std::int64_t calls_until_failure_ = -1;
  bool failed_ = false;
  std::string unreadable_;
  std::optional<std::chrono::microseconds> late_;
  std::int64_t free_bytes_ = std::int64_t{1} << 40;
};

}  // namespace zero::testing
