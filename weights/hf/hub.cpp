// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/hf/hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/printable.h"
#include "weights/hf/foreign_format.h"
#include "weights/text_file.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// Whether the hub may have a model of that name: "gpt2", "Qwen/Qwen2.5-0.5B".
bool is_hub_name(std::string_view path) {
  const auto fits = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.' || c == '/';
  };
  return !path.empty() && path.front() != '/' && path.front() != '.' && path.back() != '/' &&
         std::ranges::count(path, '/') <= 1 && std::ranges::all_of(path, fits);
}

/// The snapshot that a folder models--x--y of the hub's cache calls its main one, else any; empty
/// if it holds none.
std::string snapshot_in(const fs::path& cache) {
  std::error_code error;
  try {
    std::string main = read_text(files::disk(), (cache / "refs/main").string(), 1000);
    while (main.ends_with('\n')) main.pop_back();
    const fs::path there = cache / "snapshots" / main;
    if (!main.empty() && fs::exists(there / "config.json", error)) return there.string();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): any snapshot will do
  }
  for (fs::directory_iterator at(cache / "snapshots", error), end; !error && at != end;
       at.increment(error)) {
    std::error_code unreadable;
    if (fs::exists(at->path() / "config.json", unreadable)) return at->path().string();
  }
  return "";
}

/// Of a folder that is there.
std::string advice_inside(const fs::path& folder) {
  if (is_there(folder / "snapshots")) {
    const std::string snapshot = snapshot_in(folder);
    if (snapshot.empty()) {
      return "; it is a folder of Hugging Face's cache without a whole snapshot: download the "
             "model again, as with hf download NAME --local-dir FOLDER, and give FOLDER";
    }
    return fmt::format("; it is a folder of Hugging Face's cache: give {}",
                       printable_line(snapshot));
  }
  if (is_there(folder / "model.safetensors") || is_there(folder / "model.safetensors.index.json")) {
    return "";
  }
  const std::string foreign = foreign_folder(folder.string());
  return foreign.empty() ? "" : "; " + foreign;
}

}  // namespace

std::string folder_advice(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return advice_inside(fs::path(path + "/").parent_path());
  if (is_there(path)) {
    const std::string foreign = foreign_file_at(path);
    return foreign.empty() ? "" : "; it " + foreign;
  }
  if (!is_hub_name(path)) return "";
  return fmt::format(
      "; if {0} is a name of Hugging Face's hub: models are not downloaded here; run hf download "
      "{0} --local-dir FOLDER, and give FOLDER",
      path);
}

}  // namespace zero
