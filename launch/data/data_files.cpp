// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/data_files.h"

#include <fmt/format.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <set>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "files/file_system.h"
#include "launch/data/prepared_set.h"
#include "launch/data/token_digest.h"

namespace zero {
namespace {

constexpr const char* kTrain = "data.train";
constexpr const char* kValidation = "data.validation";
constexpr std::array<std::string_view, 5> kValidationWords{"val", "valid", "validation", "eval",
                                                           "evaluation"};
/// What lies beside token files and is none.
constexpr std::array<std::string_view, 3> kOtherEndings{".digest", ".tmp", ".lock"};
constexpr std::array<std::string_view, 2> kTrainWords{"train", "training"};

struct Found {
  std::string path;
  bool named = false;  // by itself, rather than by a folder or a pattern
};

std::string name_of(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

/// Whether one of the words of a file's name, runs of letters in any case, is among `words`.
template <typename Words>
bool has_word(const std::string& path, const Words& words) {
  std::string word;
  for (const char c : name_of(path) + ".") {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (lower >= 'a' && lower <= 'z') {
      word += lower;
      continue;
    }
    if (std::ranges::count(words, word) > 0) return true;
    word.clear();
  }
  return false;
}

bool is_validation(const std::string& path) { return has_word(path, kValidationWords); }
bool is_train(const std::string& path) {
  return !is_validation(path) && has_word(path, kTrainWords);
}

std::vector<std::string> matches_of(const std::string& pattern) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> paths;
  if (result == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return paths;
}

/// Adds the files whose digests these are: a digest without its file tells that one is missing.
void add_files_of(const std::vector<std::string>& digests, std::vector<std::string>& files) {
  for (const std::string& digest : digests) {
    files.push_back(digest.substr(0, digest.size() - digest_path("").size()));
  }
  std::ranges::sort(files);
  files.erase(std::ranges::unique(files).begin(), files.end());
}

void check_is_there(const std::string& path, const std::string& key) {
  std::error_code ignored;
  ZERO_CHECK(std::filesystem::exists(path, ignored) ||
                 !std::filesystem::exists(digest_path(path), ignored),
             "{}: {} is missing, and its digest {} lies there: bring the file back, or, if the run "
             "is to go without it, remove the digest",
             key, path, digest_path(path));
}

std::vector<std::string> token_files_in(const std::string& folder, const std::string& key) {
  std::vector<std::string> files;
  std::vector<std::string> digests;
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    const std::string path = at->path().string();
    if (path.ends_with(".bin")) files.push_back(path);
    if (path.ends_with(digest_path(".bin"))) digests.push_back(path);
  }
  ZERO_CHECK(!error, "{}: the folder {} cannot be read: {}; allow reading it, or name its files",
             key, folder, error.message());
  add_files_of(digests, files);
  return files;
}

template <typename Keep>
std::vector<std::string> kept(const std::vector<std::string>& files, const Keep& keep) {
  std::vector<std::string> some;
  std::ranges::copy_if(files, std::back_inserter(some), keep);
  return some;
}

std::vector<std::string> validation_files(const std::string& folder,
                                          const std::vector<std::string>& all) {
  std::vector<std::string> files = kept(all, is_validation);
  if (files.empty() && std::ranges::none_of(all, is_train)) files = all;
  ZERO_CHECK(!files.empty(),
             "data.validation: the folder {} holds no validation files: of its {} .bin files, none "
             "has the word val, valid, validation or eval in its name, as {} has the word train; "
             "name the files or a pattern, or make them with zero_prepare --validation",
             folder, all.size(), name_of(*std::ranges::find_if(all, is_train)));
  return files;
}

std::vector<std::string> train_files(const std::string& folder, const std::vector<std::string>& all,
                                     std::vector<std::string>& left_out) {
  const std::vector<std::string> others =
      kept(all, [](const std::string& path) { return !is_validation(path); });
  ZERO_CHECK(!others.empty(),
             "data.train: the folder {} holds only validation files by their names ({}); to train "
             "on them, name the files or a pattern",
             folder, name_of(all.front()));
  std::ranges::copy_if(all, std::back_inserter(left_out), is_validation);
  const std::vector<std::string> named = kept(others, is_train);
  if (named.empty()) return others;
  std::ranges::copy_if(others, std::back_inserter(left_out), std::not_fn(is_train));
  return named;
}

std::vector<std::string> files_in(const std::string& folder, const std::string& key,
                                  std::vector<std::string>& left_out) {
  const std::vector<std::string> all = token_files_in(folder, key);
  ZERO_CHECK(!all.empty(),
             "{}: the folder {} holds no .bin token files; make them with zero_prepare --out {}",
             key, folder, folder);
  return key == kValidation ? validation_files(folder, all) : train_files(folder, all, left_out);
}

std::vector<Found> find(const std::vector<std::string>& names, const std::string& key,
                        std::vector<std::string>& left_out) {
  std::vector<Found> files;
  for (const std::string& name : names) {
    std::error_code ignored;
    std::vector<std::string> found;
    const bool folder = std::filesystem::is_directory(name, ignored);
    if (folder) {
      PreparedSet::finish_interrupted(files::disk(), name);
    } else {
      for (const std::string& place : matches_of(files::folder_of(name))) {
        PreparedSet::finish_interrupted(files::disk(), place);
      }
    }
    if (folder) {
      found = files_in(name, key, left_out);
    } else if (!std::filesystem::exists(name, ignored) &&
               name.find_first_of("*?[") != std::string::npos) {
      found = kept(matches_of(name), may_be_token_file);
      add_files_of(matches_of(digest_path(name)), found);
      ZERO_CHECK(!found.empty(), "{}: no file matches {}; make token files with zero_prepare", key,
                 name);
    } else {
      files.push_back({name, true});
    }
    for (std::string& path : found) {
      check_is_there(path, key);
      files.push_back({std::move(path), false});
    }
  }
  std::ranges::sort(files, {}, &Found::path);
  const auto twice = std::ranges::adjacent_find(files, {}, &Found::path);
  ZERO_CHECK(twice == files.end(), "{}: {} is given twice; name each token file once", key,
             twice->path);
  return files;
}

/// The same text for all paths of one file.
std::string identity_of_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return path;  // opening it tells
  return fmt::format("{}:{}", status.st_dev, status.st_ino);
}

}  // namespace

std::vector<std::string> expand_data_files(const std::vector<std::string>& names,
                                           const std::string& key) {
  std::vector<std::string> left_out;
  std::vector<std::string> paths;
  for (Found& file : find(names, key, left_out)) paths.push_back(std::move(file.path));
  return paths;
}

bool may_be_token_file(const std::string& path) {
  return std::ranges::none_of(kOtherEndings,
                              [&](std::string_view end) { return path.ends_with(end); });
}

DataFiles find_data_files(const std::vector<std::string>& train,
                          const std::vector<std::string>& validation) {
  DataFiles files;
  std::vector<std::string> left_out;
  const std::vector<Found> found = find(train, kTrain, left_out);
  files.validation = expand_data_files(validation, kValidation);
  std::set<std::string> validated;
  for (const std::string& path : files.validation) validated.insert(identity_of_file(path));
  for (const Found& file : found) {
    if (!validated.contains(identity_of_file(file.path))) {
      files.train.push_back(file.path);
      continue;
    }
    std::error_code ignored;
    ZERO_CHECK(
        std::filesystem::status(file.path, ignored).type() != std::filesystem::file_type::not_found,
        "data.train and data.validation name {}, which is not there; correct the name, or "
        "make token files with zero_prepare",
        file.path);
    ZERO_CHECK(!file.named,
               "data.train names {}, which is a file of data.validation too: a loss on data that "
               "were trained on says nothing; leave the file out of one of them",
               file.path);
    left_out.push_back(file.path);
  }
  ZERO_CHECK(!files.train.empty(),
             "data.train: all of its {} file(s) are files of data.validation, and nothing is left "
             "to train on; name other files in one of them",
             found.size());
  for (const std::string& path : left_out) {
    const char* why = "its name lacks the word train, which others have";
    if (is_validation(path))
      why = "a validation file by its name; to train on it, name the file itself";
    if (validated.contains(identity_of_file(path))) why = "a file of data.validation";
    files.lines.push_back(fmt::format("data.train: {} is left out: {}", path, why));
  }
  return files;
}

}  // namespace zero
