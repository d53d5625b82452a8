// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/prepared_set.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "weights/text_file.h"

namespace zero {
namespace {

using files::FileSystem;
using files::PathKind;

constexpr const char* kStaging = ".zero_prepare_new";
constexpr const char* kDecided = ".zero_prepare_done";
/// The names of the set, a line each. Its file goes last.
constexpr const char* kNames = "SET";

RunLock::Place place_of(const std::string& folder, const std::string& key) {
  return {.key = key, .path = folder, .file = folder + "/.zero_prepare.lock"};
}

bool is_of_set(const std::string& name) {
  if (name.find('/') != std::string::npos) return false;
  const std::string file =
      name.ends_with(".digest") ? name.substr(0, name.size() - std::strlen(".digest")) : name;
  if (file == "validation.bin") return true;
  constexpr std::string_view kBegin = "train_";
  constexpr std::string_view kEnd = ".bin";
  if (!file.starts_with(kBegin) || !file.ends_with(kEnd)) return false;
  const std::string number = file.substr(kBegin.size(), file.size() - kBegin.size() - kEnd.size());
  return !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
}

std::vector<std::string> read_names(FileSystem& files, const std::string& path) {
  std::istringstream lines(read_text(files, path));
  std::vector<std::string> names;
  for (std::string name; std::getline(lines, name);) {
    ZERO_CHECK(is_of_set(name),
               "{}: names {}, which zero_prepare does not write; remove its folder", path, name);
    names.push_back(name);
  }
  return names;
}

bool is_decided(FileSystem& files, const std::string& folder) {
  const std::string decided = folder + "/" + kDecided;
  return files.kind_of(decided) == PathKind::folder && !files.is_link(decided);
}

/// Where no lock can be had, one of several processes that finish_interrupted the same folder
/// renames each file.
void move(FileSystem& files, const std::string& from, const std::string& to) {
  if (files.kind_of(from) == PathKind::missing) return;
  try {
    files.rename(from, to);
  } catch (const Error&) {
    if (files.kind_of(from) != PathKind::missing) throw;
  }
}

}  // namespace

PreparedSet::PreparedSet(FileSystem& files, std::string folder)
    : files_(files),
      folder_(std::move(folder)),
      staging_(folder_ + "/" + kStaging),
      lock_(place_of(folder_, "--out")) {
  finish(files_, folder_);
  clear();
  files_.make_folder(staging_);
}

PreparedSet::~PreparedSet() {
  try {
    clear();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the next zero_prepare removes them
  }
}

void PreparedSet::clear() {
  if (files_.is_link(staging_)) return files_.remove_file(staging_);
  if (files_.kind_of(staging_) == PathKind::missing) return;
  for (const std::string& name : files_.list(staging_)) files_.remove_file(path_of(name));
  files_.remove_folder(staging_);
}

void PreparedSet::commit(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  write_text(files_, path_of(kNames), text);
  files_.sync_folder(staging_);
  files_.rename(staging_, folder_ + "/" + kDecided);
  files_.sync_folder(folder_);
  finish(files_, folder_);
}

void PreparedSet::finish_interrupted(FileSystem& files, const std::string& folder,
                                     std::chrono::milliseconds patience) {
  if (!is_decided(files, folder)) return;
  std::optional<RunLock> lock;
  try {
    lock.emplace(place_of(folder, "data.train"), patience);
  } catch (const Error&) {
    if (is_decided(files, folder)) throw;
    return;  // the process that has the lock was quicker
  }
  finish(files, folder);
}

void PreparedSet::finish(FileSystem& files, const std::string& folder) {
  if (!is_decided(files, folder)) return;
  const std::string decided = folder + "/" + kDecided;
  try {
    const std::string list = decided + "/" + kNames;
    if (files.kind_of(list) == PathKind::file) {
      const std::vector<std::string> names = read_names(files, list);
      for (const std::string& name : files.list(folder)) {
        if (is_of_set(name) && std::ranges::count(names, name) == 0) {
          files.remove_file(folder + "/" + name);
        }
      }
      for (const std::string& name : names) move(files, decided + "/" + name, folder + "/" + name);
      files.sync_folder(folder);
      files.remove_file(list);
    }
    files.remove_folder(decided);
  } catch (const Error& error) {
    fail(
        "{}: a zero_prepare was interrupted here when all its files were written, and what it left "
        "cannot be finished: {}; start this as a user who may write to the folder, or start "
        "zero_prepare again",
        folder, error.what());
  }
}

}  // namespace zero
