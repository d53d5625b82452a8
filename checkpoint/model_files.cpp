// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint_name.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/hf/lfs_pointer.h"
#include "checkpoint/whole_file.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "weights/";

/// A file of a checkpoint, which gives out no byte of a block that is damaged.
template <typename Source>
class VerifiedFile final : public files::InputFile {
 public:
  VerifiedFile(std::shared_ptr<Source> source, std::size_t file)
      : source_(std::move(source)),
        file_(file),
        path_(fmt::format("{}/{}", source_->checkpoint.folder(), listed().name)) {}

  const std::string& path() const override { return path_; }
  std::int64_t size() const override { return listed().bytes; }
  void read(std::int64_t offset, std::span<std::byte> out) override {
    const std::lock_guard lock(source_->mutex);
    source_->checkpoint.read_bytes(file_, offset, out);
  }

 private:
  const CheckpointIndex::File& listed() const { return source_->checkpoint.index().files[file_]; }

  std::shared_ptr<Source> source_;
  std::size_t file_;
  std::string path_;
};

/// Whether `folder` is a checkpoint, or is called like one and must be.
bool is_checkpoint(const fs::path& folder) {
  return parse_checkpoint_name(folder.filename().string()) ||
         (fs::exists(folder / "COMMIT") && fs::exists(folder / "index.json"));
}

/// `path` with its first link replaced by where that leads to; nothing if no part is a link.
std::optional<fs::path> follow_link(const fs::path& path) {
  fs::path head;
  for (auto part = path.begin(); part != path.end(); ++part) {
    const fs::path there = head / *part;
    if (!fs::is_symlink(there)) {
      head = there;
      continue;
    }
    fs::path target = head / fs::read_symlink(there);
    while (++part != path.end()) target /= *part;
    return target;
  }
  return std::nullopt;
}

/// The name of `file` in the folder `weights` of a checkpoint: as given, or as one of its links
/// names it. Nothing if it is in none.
std::optional<fs::path> name_in_checkpoint(const std::string& file) {
  constexpr int kLinks = 40;  // of Linux, in one path
  std::optional<fs::path> path = fs::absolute(file);
  for (int links = 0; path && links <= kLinks; ++links, path = follow_link(*path)) {
    const fs::path name = path->lexically_normal();
    // Behind a link, ".." leads elsewhere.
    if (fs::exists(file) && !(fs::exists(name) && fs::equivalent(name, file))) continue;
    const fs::path folder = name.parent_path();
    if (folder.filename() == "weights" && is_checkpoint(folder.parent_path())) return name;
  }
  return std::nullopt;
}

/// Throws if the file is a Git LFS pointer.
void check_content(files::InputFile& file) {
  std::array<char, kLfsStart> start{};
  if (file.size() < std::ssize(start)) return;
  file.read(0, std::as_writable_bytes(std::span(start)));
  refuse_lfs_pointer(file.path(), {start.data(), start.size()});
}

}  // namespace

/// A checkpoint whose weights are read; by one thread at a time.
struct ModelFiles::Source {
  explicit Source(const std::string& folder) : checkpoint(files::disk(), folder, kWeights) {}

  std::mutex mutex;
  CheckpointReader checkpoint;
};

std::unique_ptr<files::InputFile> ModelFiles::open(const std::string& path) {
  const files::PathKind kind = files::disk().kind_of(path);
  ZERO_CHECK(kind == files::PathKind::file || kind == files::PathKind::missing,
             "{}: is not a regular file; expected a file of a model", path);
  const std::optional<fs::path> in_checkpoint = name_in_checkpoint(path);
  if (!in_checkpoint) {
    auto file = files::disk().open_read(path);
    check_content(*file);
    return file;
  }
  const std::string folder = in_checkpoint->parent_path().parent_path().string();
  std::shared_ptr<Source>& source = sources_[folder];
  if (!source) source = std::make_shared<Source>(folder);
  const std::vector<CheckpointIndex::File>& listed = source->checkpoint.index().files;
  const std::string name = kWeights + in_checkpoint->filename().string();
  const auto found = std::ranges::find(listed, name, &CheckpointIndex::File::name);
  ZERO_CHECK(found != listed.end(),
             "{}: is not of the checkpoint {}: its index.json lists none; remove the file, or put "
             "it into a folder that zero_ckpt export writes",
             path, source->checkpoint.folder());
  return std::make_unique<VerifiedFile<Source>>(source,
                                                static_cast<std::size_t>(found - listed.begin()));
}

std::string read_model_text(const std::string& path, std::int64_t largest) {
  const auto file = ModelFiles().open(path);
  check_size(*file, largest);
  return whole_file(*file);
}

}  // namespace zero
