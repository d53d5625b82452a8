// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/model_files.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "files/file_system.h"
#include "weights/checkpoint_name.h"
#include "weights/checkpoint_reader.h"
#include "weights/hf/advice.h"

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

bool is_found(const fs::path& path) {
  return files::disk().kind_of(path.string()) != files::PathKind::missing;
}

/// Whether `folder` is a checkpoint, or is called like one and must be.
bool is_checkpoint(const fs::path& folder) {
  return parse_checkpoint_name(folder.filename().string()) ||
         (is_found(folder / "COMMIT") && is_found(folder / "index.json"));
}

struct NameInCheckpoint {
  fs::path checkpoint;
  std::string name;  ///< as its index lists files
};

/// The name of a path below the folder `weights` of a checkpoint, without links; nothing if it is
/// in none.
std::optional<NameInCheckpoint> below_weights(const fs::path& path) {
  for (fs::path folder = path.parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    if (folder.filename() != "weights" || !is_checkpoint(folder.parent_path())) continue;
    return NameInCheckpoint{folder.parent_path(),
                            kWeights + path.lexically_relative(folder).generic_string()};
  }
  return std::nullopt;
}

/// The name of `file` in a checkpoint: as given, or as one of its links names it. Nothing if it is
/// in none.
std::optional<NameInCheckpoint> name_in_checkpoint(const std::string& file) {
  for (const std::string& path : files::names_by_links(fs::absolute(file).string())) {
    const fs::path name = fs::path(path).lexically_normal();
    // Behind a link, ".." leads elsewhere.
    if (is_found(file) && !files::same_place(name.string(), file)) continue;
    if (auto found = below_weights(name)) return found;
  }
  return std::nullopt;
}

/// Throws if the file is a Git LFS pointer or weights in a format that is not read.
void check_content(files::InputFile& file) {
  const std::string start = start_of_file(file, std::max(kLfsPointer.size(), kForeignStart));
  check_no_pointer(file.path(), start);
  const std::string foreign = foreign_file(start);
  ZERO_CHECK(foreign.empty(), "{}: {}", file.path(), foreign);
}

}  // namespace

void check_no_pointer(const std::string& path, std::string_view start) {
  ZERO_CHECK(!start.starts_with(kLfsPointer),
             "{}: is a Git LFS pointer, not the file it stands for: the folder was cloned without "
             "its large files; install Git LFS and run git lfs pull in the folder",
             path);
}

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
  const std::optional<NameInCheckpoint> in_checkpoint = name_in_checkpoint(path);
  if (!in_checkpoint) {
    auto file = files::disk().open_read(path);
    check_content(*file);
    return file;
  }
  const std::string folder = in_checkpoint->checkpoint.string();
  std::shared_ptr<Source>& source = sources_[folder];
  if (!source) source = std::make_shared<Source>(folder);
  const std::vector<CheckpointIndex::File>& listed = source->checkpoint.index().files;
  const auto found = std::ranges::find(listed, in_checkpoint->name, &CheckpointIndex::File::name);
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

std::vector<std::string> weight_files(const std::string& path) {
  constexpr const char* kModelFile = "model.safetensors";
  if (files::disk().kind_of(path) != files::PathKind::folder) return {path};
  const fs::path folder(path);
  if (is_found(folder / kModelFile)) return {(folder / kModelFile).string()};
  const fs::path index = folder / kWeightIndex;
  ZERO_CHECK(is_found(index),
             "{}: found neither {} nor {}; expected a folder of Hugging Face's with one of them{}",
             path, kModelFile, kWeightIndex, folder_advice(path));
  std::vector<std::string> paths;
  for (const std::string& name : files_of_index(index.string(), read_model_text(index.string()))) {
    paths.push_back((index.parent_path() / name).string());
  }
  return paths;
}

std::vector<SafetensorsReader> open_weights(const std::string& path) {
  ModelFiles files;
  std::vector<SafetensorsReader> readers;
  for (const std::string& file : weight_files(path)) readers.emplace_back(files.open(file));
  return readers;
}

}  // namespace zero
