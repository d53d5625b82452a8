// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/memory_files.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "base/error.h"

namespace zero::testing {
namespace {

std::vector<std::string> components(const std::string& path) {
  std::vector<std::string> names;
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    if (!name.empty() && name != ".") names.push_back(name);
    begin = end + 1;
  }
  return names;
}

struct Split {
  std::string folder;
  std::string name;
};
Split split(const std::string& path) {
  std::vector<std::string> names = components(path);
  ZERO_CHECK(!names.empty(), "{}: is the root", path);
  Split result{"", names.back()};
  names.pop_back();
  for (const std::string& name : names) result.folder += "/" + name;
  return result;
}

}  // namespace

bool Change::covers(const Change& earlier) const {
  if (kind == Kind::sync_file) {
    return earlier.node == node && (earlier.kind == Kind::resize || earlier.kind == Kind::write);
  }
  const bool entry =
      earlier.kind == Kind::link || earlier.kind == Kind::unlink || earlier.kind == Kind::rename;
  return kind == Kind::sync_folder && entry && earlier.folder == folder;
}

Tree::Node& Tree::node(std::size_t index) {
  if (index >= nodes_.size()) nodes_.resize(index + 1);
  return nodes_[index];
}

void Tree::link(std::size_t folder, const std::string& name, std::size_t node) {
  const auto [entry, added] = this->node(folder).entries.emplace(name, node);
  // A file may replace a file.
  if (!added && entry->second != node && nodes_.at(entry->second).folder) collided_ = true;
  entry->second = node;
}

void Tree::apply(const Change& change) {
  using Kind = Change::Kind;
  switch (change.kind) {
    case Kind::link:
      node(change.node).folder = change.makes_folder;
      link(change.folder, change.name, change.node);
      break;
    case Kind::unlink:
      node(change.folder).entries.erase(change.name);
      break;
    case Kind::rename:
      node(change.folder).entries.erase(change.name);
      link(change.folder, change.to, change.node);
      break;
    case Kind::resize:
      node(change.node).data.resize(static_cast<std::size_t>(change.offset));
      break;
    case Kind::write: {
      std::string& data = node(change.node).data;
      const auto begin = static_cast<std::size_t>(change.offset);
      data.resize(std::max(data.size(), begin + change.data.size()));
      std::copy(change.data.begin(), change.data.end(), data.begin() + change.offset);
      break;
    }
    case Kind::sync_file:
    case Kind::sync_folder:
      break;
  }
}

void Tree::lose(const Change& change) {
  if (change.kind == Change::Kind::link) node(change.node).folder = change.makes_folder;
}

const std::size_t* Tree::find(const std::string& path) const {
  const std::size_t* found = &root_;
  for (const std::string& name : components(path)) {
    const auto& entries = nodes_[*found].entries;
    const auto entry = entries.find(name);
    if (entry == entries.end()) return nullptr;
    found = &entry->second;
  }
  return found;
}

std::map<std::string, std::string> Tree::contents(const std::string& path) const {
  std::map<std::string, std::string> result;
  const std::size_t* folder = find(path);
  if (folder == nullptr) return result;
  for (const auto& [name, index] : at(*folder).entries) {
    if (!at(index).folder) {
      result[name] = at(index).data;
      continue;
    }
    result[name + "/"] = "";
    for (auto& [below, data] : contents(path + "/" + name)) result[name + "/" + below] = data;
  }
  return result;
}

void Tree::set(const std::string& path, std::string data) {
  const std::size_t* found = find(path);
  ZERO_CHECK(found != nullptr && !at(*found).folder, "{}: is no file", path);
  nodes_[*found].data = std::move(data);
}

class MemoryFiles::Output final : public files::OutputFile {
 public:
  Output(MemoryFiles& files, std::string path, std::size_t node)
      : files_(files), path_(std::move(path)), node_(node) {}

  const std::string& path() const override { return path_; }
  void write(std::int64_t offset, std::span<const std::byte> bytes) override {
    files_.change(path_, {.kind = Change::Kind::write,
                          .node = node_,
                          .offset = offset,
                          .data = {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }
  void sync() override { files_.change(path_, {.kind = Change::Kind::sync_file, .node = node_}); }

 private:
  MemoryFiles& files_;
  std::string path_;
  std::size_t node_;
};

class MemoryFiles::Input final : public files::InputFile {
 public:
  Input(MemoryFiles& files, std::string path, std::size_t node)
      : files_(files), path_(std::move(path)), node_(node) {}

  const std::string& path() const override { return path_; }
  std::int64_t size() const override {
    const std::lock_guard lock(files_.mutex_);
    return std::ssize(files_.tree_.at(node_).data);
  }
  void read(std::int64_t offset, std::span<std::byte> out) override {
    const std::lock_guard lock(files_.mutex_);
    const std::string& data = files_.tree_.at(node_).data;
    ZERO_CHECK(offset + std::ssize(out) <= std::ssize(data), "{}: offset {}: ends first", path_,
               offset);
    if (!out.empty()) std::memcpy(out.data(), data.data() + offset, out.size());
  }

 private:
  MemoryFiles& files_;
  std::string path_;
  std::size_t node_;
};

/// Transfers at once, or when it is waited for; what fails, fails at wait().
class MemoryFiles::Queue final : public files::TransferQueue {
 public:
  explicit Queue(std::optional<std::chrono::microseconds> late) : late_(late) {}
  ~Queue() override {
    for (Transfer& transfer : transfers_) run(transfer);
  }

  Ticket write(files::OutputFile& file, std::int64_t offset,
               std::span<const std::byte> bytes) override {
    return add({[=, &file] { file.write(offset, bytes); }, bytes, false});
  }
  Ticket read(files::InputFile& file, std::int64_t offset, std::span<std::byte> out) override {
    return add({[=, &file] { file.read(offset, out); }, out, true});
  }
  void wait(Ticket ticket) override {
    ZERO_CHECK(ticket < transfers_.size(), "ticket {} was never given", ticket);
    run(transfers_[ticket]);
    const std::string error = std::exchange(transfers_[ticket].error, "waited for twice");
    ZERO_CHECK(error.empty(), "{}", error);
  }

 private:
  struct Transfer {
    std::function<void()> work;  // none: it is over
    std::span<const std::byte> memory;
    bool fills;  // that memory
    std::string error{};

    bool meets(const Transfer& other) const {
      return (fills || other.fills) && !memory.empty() && !other.memory.empty() &&
             memory.data() < other.memory.data() + other.memory.size() &&
             other.memory.data() < memory.data() + memory.size();
    }
  };

  Ticket add(Transfer transfer) {
    while (over_ < transfers_.size() && !transfers_[over_].work) ++over_;
    for (std::size_t i = over_; i < transfers_.size(); ++i) {
      ZERO_CHECK(!transfers_[i].work || !transfers_[i].meets(transfer),
                 "a transfer has the memory of one that is not over");
    }
    transfers_.push_back(std::move(transfer));
    if (!late_) run(transfers_.back());
    return transfers_.size() - 1;
  }
  void run(Transfer& transfer) const {
    const std::function<void()> work = std::exchange(transfer.work, nullptr);
    if (work && late_) std::this_thread::sleep_for(*late_);
    try {
      if (work) work();
    } catch (const Error& error) {
      transfer.error = error.what();
    }
  }

  std::optional<std::chrono::microseconds> late_;
  std::vector<Transfer> transfers_;
  std::size_t over_ = 0;  // those before it are
};

void MemoryFiles::change(const std::string& path, Change change) {
  const std::lock_guard lock(mutex_);
  if (calls_until_failure_ >= 0 && calls_until_failure_-- == 0) {
    failed_ = true;
    fail("{}: No space left on device", path);
  }
  tree_.apply(change);
  changes_.push_back(std::move(change));
}

std::size_t MemoryFiles::node_at(const std::string& path, const std::string& purpose) const {
  const std::size_t* node = tree_.find(path);
  ZERO_CHECK(node != nullptr, "{}: cannot {}: No such file or directory", path, purpose);
  return *node;
}

std::size_t MemoryFiles::folder_at(const std::string& path) const {
  const std::size_t folder = node_at(path, "use the folder");
  ZERO_CHECK(tree_.at(folder).folder, "{}: Not a directory", path);
  return folder;
}

std::unique_ptr<files::OutputFile> MemoryFiles::create(const std::string& path,
                                                       std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto [folder, name] = split(path);
  const std::size_t parent = folder_at(folder);
  std::size_t node = tree_.size();
  if (const std::size_t* found = tree_.find(path)) {
    ZERO_CHECK(!tree_.at(*found).folder, "{}: Is a directory", path);
    node = *found;
    change(path, {.kind = Change::Kind::resize, .node = node, .offset = 0});
  } else {
    change(path, {.kind = Change::Kind::link, .node = node, .folder = parent, .name = name});
  }
  change(path, {.kind = Change::Kind::resize, .node = node, .offset = bytes});
  return std::make_unique<Output>(*this, path, node);
}

std::unique_ptr<files::OutputFile> MemoryFiles::open_write(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const std::size_t node = node_at(path, "open for writing");
  ZERO_CHECK(!tree_.at(node).folder, "{}: is not a regular file", path);
  return std::make_unique<Output>(*this, path, node);
}

std::unique_ptr<files::InputFile> MemoryFiles::open_read(const std::string& path) {
  const std::lock_guard lock(mutex_);
  ZERO_CHECK(unreadable_.empty() || !path.starts_with(unreadable_),
             "{}: cannot open for reading: Too many open files", path);
  const std::size_t node = node_at(path, "open for reading");
  ZERO_CHECK(!tree_.at(node).folder, "{}: is not a regular file", path);
  return std::make_unique<Input>(*this, path, node);
}

files::ScratchFile MemoryFiles::create_scratch(const std::string& folder, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  folder_at(folder);
  const std::string path = folder + "/(no name)";
  const std::size_t node = tree_.size();
  change(path, {.kind = Change::Kind::resize, .node = node, .offset = bytes});
  return {std::make_unique<Output>(*this, path, node), std::make_unique<Input>(*this, path, node)};
}

files::PathKind MemoryFiles::kind_of(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const std::size_t* node = tree_.find(path);
  if (node == nullptr) return files::PathKind::missing;
  return tree_.at(*node).folder ? files::PathKind::folder : files::PathKind::file;
}

std::vector<std::string> MemoryFiles::list(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, node] : tree_.at(folder_at(folder)).entries) names.push_back(name);
  return names;
}

void MemoryFiles::make_folder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (kind_of(path) == files::PathKind::folder) return;
  ZERO_CHECK(tree_.find(path) == nullptr, "{}: File exists", path);
  const auto [folder, name] = split(path);
  change(path, {.kind = Change::Kind::link,
                .node = tree_.size(),
                .folder = folder_at(folder),
                .name = name,
                .makes_folder = true});
}

void MemoryFiles::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  const std::size_t node = node_at(from, "rename");
  const auto [folder, name] = split(from);
  const auto [new_folder, new_name] = split(to);
  ZERO_CHECK(folder == new_folder, "{}: cannot be renamed to another folder here", from);
  const files::PathKind there = kind_of(to);
  const bool may = there == files::PathKind::missing ||
                   (there == files::PathKind::file && !tree_.at(node).folder);
  ZERO_CHECK(may, "{}: cannot rename {} to it: Directory not empty", to, from);
  change(from, {.kind = Change::Kind::rename,
                .node = node,
                .folder = folder_at(folder),
                .name = name,
                .to = new_name});
}

void MemoryFiles::remove_file(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (kind_of(path) == files::PathKind::missing) return;
  ZERO_CHECK(kind_of(path) == files::PathKind::file, "{}: Is a directory", path);
  const auto [folder, name] = split(path);
  change(path, {.kind = Change::Kind::unlink, .folder = folder_at(folder), .name = name});
}

void MemoryFiles::remove_folder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (kind_of(path) == files::PathKind::missing) return;
  ZERO_CHECK(tree_.at(folder_at(path)).entries.empty(), "{}: Directory not empty", path);
  const auto [folder, name] = split(path);
  change(path, {.kind = Change::Kind::unlink, .folder = folder_at(folder), .name = name});
}

void MemoryFiles::sync_folder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  change(path, {.kind = Change::Kind::sync_folder, .folder = folder_at(path)});
}

std::int64_t MemoryFiles::free_bytes(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  folder_at(folder);
  return free_bytes_;
}

std::unique_ptr<files::TransferQueue> MemoryFiles::queue(std::span<std::byte> /*memory*/,
                                                         const files::QueueOptions& /*options*/) {
  return std::make_unique<Queue>(late_);
}

std::string MemoryFiles::io_description() { return "memory"; }

}  // namespace zero::testing
