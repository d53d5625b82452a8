// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_source.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint_name.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/hf/folder.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "weights/";

/// A checkpoint whose weights are read; by one thread at a time.
struct Source {
  explicit Source(const std::string& folder) : step(files::disk(), folder, kWeights) {}

  std::mutex mutex;
  CheckpointReader step;
};

/// A file of a checkpoint, which gives out no byte of a block that is damaged.
class VerifiedFile final : public files::InputFile {
 public:
  VerifiedFile(std::shared_ptr<Source> source, std::size_t file)
      : source_(std::move(source)),
        file_(file),
        path_(fmt::format("{}/{}", source_->step.folder(), listed().name)) {}

  const std::string& path() const override { return path_; }
  std::int64_t size() const override { return listed().bytes; }
  void read(std::int64_t offset, std::span<std::byte> out) override {
    const std::lock_guard lock(source_->mutex);
    source_->step.read_bytes(file_, offset, out);
  }

 private:
  const CheckpointIndex::File& listed() const { return source_->step.index().files[file_]; }

  std::shared_ptr<Source> source_;
  std::size_t file_;
  std::string path_;
};

/// Whether `folder` is a checkpoint, or is called like one and must be.
bool is_step(const fs::path& folder) {
  return parse_checkpoint_name(folder.filename().string()) ||
         (fs::exists(folder / "COMMIT") && fs::exists(folder / "index.json"));
}

}  // namespace

std::vector<SafetensorsReader> open_weights(const std::string& path) {
  std::vector<SafetensorsReader> readers;
  std::shared_ptr<Source> source;
  for (const std::string& file : weight_files(path)) {
    // Links to the folder lead into the checkpoint too.
    const fs::path folder = fs::weakly_canonical(fs::absolute(file).parent_path());
    if (folder.filename() != "weights" || !is_step(folder.parent_path())) {
      readers.emplace_back(file);
      continue;
    }
    if (!source) source = std::make_shared<Source>(folder.parent_path().string());
    const std::vector<CheckpointIndex::File>& listed = source->step.index().files;
    const std::string name = kWeights + fs::path(file).filename().string();
    const auto found = std::ranges::find(listed, name, &CheckpointIndex::File::name);
    ZERO_CHECK(found != listed.end(), "{}: is not of the checkpoint {}: its index.json lists none",
               file, source->step.folder());
    readers.emplace_back(
        std::make_unique<VerifiedFile>(source, static_cast<std::size_t>(found - listed.begin())));
  }
  return readers;
}

}  // namespace zero
