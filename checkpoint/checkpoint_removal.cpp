// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "checkpoint/checkpoint_folder.h"
#include "weights/checkpoint_index.h"
#include "weights/checkpoint_name.h"
#include "weights/text_file.h"

namespace zero {
namespace {

constexpr std::string_view kCommit = "COMMIT";
constexpr std::string_view kIndex = "index.json";
constexpr std::string_view kOwner = "OWNER";

/// Whether every checkpoint may have a file of that name.
bool is_known(const std::string& name) {
  constexpr const char* kNumber = "[0-9][0-9][0-9][0-9][0-9]";
  if (name == "weights/config.json" || name == "weights/model.safetensors.index.json") return true;
  constexpr std::array kStems = {"weights/model", "moments/moment0", "moments/moment1"};
  return std::any_of(kStems.begin(), kStems.end(), [&](const char* stem) {
    const std::string of_many = fmt::format("{0}-{1}-of-{1}.safetensors", stem, kNumber);
    return name == fmt::format("{}.safetensors", stem) ||
           ::fnmatch(of_many.c_str(), name.c_str(), 0) == 0;
  });
}

/// The files that the index.json in `folder` lists; none if it is missing or damaged.
std::set<std::string> listed_files(files::FileSystem& files, const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kIndex);
  std::set<std::string> names;
  try {
    const std::string text = read_text(files, path, kLargestIndex);
    for (const CheckpointIndex::File& each : parse_checkpoint_index(path, text).files)
      names.insert(each.name);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the names that are known remain
  }
  return names;
}

/// Removes the files of one checkpoint from its folder. A link is removed, never followed.
class Purge {
 public:
  Purge(files::FileSystem& files, std::string path, const std::set<std::string>& more)
      : files_(files),
        path_(std::move(path)),
        folder_(files.open_folder(path_)),
        ours_(listed_files(files, path_)) {
    ours_.insert(more.begin(), more.end());
  }

  /// COMMIT goes first, so that no moment leaves a folder that looks whole, and index.json, which
  /// names the others, when these are durably gone.
  void run() {
    const std::vector<std::string> names = folder_->list();
    const auto has = [&](std::string_view name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (has(kCommit)) remove(*folder_, std::string(kCommit));
    if (has(kOwner)) remove(*folder_, std::string(kOwner));
    for (const std::string& name : names) {
      if (name == "weights" || name == "moments") {
        remove_inner(name);
      } else if (name != kCommit && name != kIndex && name != kOwner) {
        kept_.push_back(name);
      }
    }
    if (has(kIndex)) remove(*folder_, std::string(kIndex));
    if (kept_.empty()) files_.remove_folder(path_);
  }

  /// Names of the files that are not ours; empty if none of ours was there either, as after an
  /// earlier removal.
  std::vector<std::string> kept() const { return removed_ ? kept_ : std::vector<std::string>{}; }

 private:
  void remove(files::OpenFolder& folder, const std::string& name) {
    folder.remove_file(name);
    removed_ = true;
  }

  /// Of a checkpoint's own two folders, which may be links or files.
  void remove_inner(const std::string& name) {
    switch (folder_->kind_of(name)) {
      case files::PathKind::folder:
        return empty(name);
      case files::PathKind::missing:
        return;
      case files::PathKind::file:
        return kept_.push_back(name);
      case files::PathKind::other:
        return remove(*folder_, name);
    }
  }

  /// Removes our files of a folder in the folder, and it if it is then empty.
  void empty(const std::string& name) {
    const std::unique_ptr<files::OpenFolder> inner = folder_->open(name);
    const std::size_t kept_before = kept_.size();
    for (const std::string& each : inner->list()) {
      const std::string file = fmt::format("{}/{}", name, each);
      const bool ours = is_known(file) || ours_.contains(file);
      if (ours && inner->kind_of(each) != files::PathKind::folder) {
        remove(*inner, each);
      } else {
        kept_.push_back(file);
      }
    }
    inner->sync();
    if (kept_.size() == kept_before) folder_->remove_folder(name);
  }

  files::FileSystem& files_;
  std::string path_;
  std::unique_ptr<files::OpenFolder> folder_;
  std::set<std::string> ours_;
  std::vector<std::string> kept_;
  bool removed_ = false;
};

/// FOLDER/step_N.removed, or .removed.2 and so on, whichever is the first not there.
std::string removed_path(files::FileSystem& files, const std::string& folder, std::int64_t step) {
  const std::vector<std::string> names = files.list(folder);
  CheckpointName name{step, FolderState::removed};
  while (std::binary_search(names.begin(), names.end(), text_of(name))) ++name.copy;
  return checkpoint_path(folder, name);
}

}  // namespace

RemovalNotes purge_checkpoint(files::FileSystem& files, const std::string& path,
                              const std::set<std::string>& more) {
  try {
    if (files.is_link(path)) {
      files.remove_file(path);
      return {fmt::format("{}: was a symbolic link: the link was removed, and nothing behind it",
                          path)};
    }
    if (files.kind_of(path) != files::PathKind::folder) return {};
    Purge purge(files, path, more);
    purge.run();
    if (purge.kept().empty()) return {};
    return {fmt::format("{}: was kept with files that no checkpoint wrote: {}", path,
                        printable_line(fmt::format("{}", fmt::join(purge.kept(), ", "))))};
  } catch (const Error& error) {
    return {fmt::format("{}: could not be removed: {}", path, error.what())};
  }
}

RemovalNotes remove_checkpoint(files::FileSystem& files, const std::string& path,
                               const std::set<std::string>& more) {
  const std::optional<CheckpointName> name = parse_checkpoint_name(name_of_path(path));
  ZERO_CHECK(name, "{}: is not called as the folder of a checkpoint, {}; it was kept", path,
             text_of(CheckpointName{500}));
  if (name->state == FolderState::removed) return purge_checkpoint(files, path, more);
  const std::string folder = folder_of_path(path);
  const std::string removed = removed_path(files, folder, name->step);
  files.rename(path, removed);
  files.sync_folder(folder);
  if (!files.is_link(removed) && files.kind_of(removed) != files::PathKind::folder) {
    return {fmt::format("{}: was renamed to {} and kept: it is no folder", path, removed)};
  }
  return purge_checkpoint(files, removed, more);
}

}  // namespace zero
