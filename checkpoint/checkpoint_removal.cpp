// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_removal.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/checkpoint_name.h"
#include "checkpoint/text_file.h"

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

/// Removes the files of one checkpoint from its folder.
class Purge {
 public:
  Purge(files::FileSystem& files, std::string folder, const std::set<std::string>& more)
      : files_(files), folder_(std::move(folder)), ours_(listed_files(files, folder_)) {
    ours_.insert(more.begin(), more.end());
  }

  /// COMMIT goes first, so that no moment leaves a folder that looks whole, and index.json, which
  /// names the others, when these are durably gone.
  void run() {
    const std::vector<std::string> names = files_.list(folder_);
    const auto has = [&](std::string_view name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (has(kCommit)) remove(std::string(kCommit));
    if (has(kOwner)) remove(std::string(kOwner));
    for (const std::string& name : names) {
      // A link may lead to files of another's: those stay.
      const bool folder =
          files_.kind_of(path(name)) == files::PathKind::folder && !files_.is_link(path(name));
      if (folder && (name == "weights" || name == "moments")) {
        empty(name);
      } else if (name != kCommit && name != kIndex && name != kOwner) {
        kept_.push_back(name);
      }
    }
    if (has(kIndex)) remove(std::string(kIndex));
    if (kept_.empty()) remove_folder(folder_);
  }

  /// Names of the files that are not ours; empty if none of ours was there either, as after an
  /// earlier removal.
  std::vector<std::string> kept() const { return removed_ ? kept_ : std::vector<std::string>{}; }

 private:
  std::string path(const std::string& name) const { return fmt::format("{}/{}", folder_, name); }

  void remove(const std::string& name) {
    files_.remove_file(path(name));
    removed_ = true;
  }

  /// Removes our files of a folder in the folder, and it if it is then empty.
  void empty(const std::string& name) {
    const std::size_t kept_before = kept_.size();
    for (const std::string& each : files_.list(path(name))) {
      const std::string file = fmt::format("{}/{}", name, each);
      const bool ours = is_known(file) || ours_.contains(file);
      if (ours && files_.kind_of(path(file)) != files::PathKind::folder) {
        remove(file);
      } else {
        kept_.push_back(file);
      }
    }
    files_.sync_folder(path(name));
    if (kept_.size() == kept_before) remove_folder(path(name));
  }

  /// A symbolic link to a folder is removed as a file.
  void remove_folder(const std::string& path) {
    try {
      files_.remove_folder(path);
    } catch (const Error&) {
      if (!files_.list(path).empty()) throw;
      files_.remove_file(path);
    }
  }

  files::FileSystem& files_;
  std::string folder_;
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
  if (files.kind_of(path) != files::PathKind::folder) return {};
  try {
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
  if (files.kind_of(removed) != files::PathKind::folder) {
    return {fmt::format("{}: was renamed to {} and kept: it is no folder", path, removed)};
  }
  return purge_checkpoint(files, removed, more);
}

}  // namespace zero
