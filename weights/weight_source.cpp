// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/weight_source.h"

#include <filesystem>

#include "base/error.h"
#include "weights/hf/hub.h"
#include "weights/hf/index.h"
#include "weights/model_files.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

std::vector<std::string> listed_files(const fs::path& index) {
  const std::string text = read_model_text(index.string());
  std::vector<std::string> paths;
  for (const std::string& name : files_of_index(index.string(), text))
    paths.push_back((index.parent_path() / name).string());
  return paths;
}

}  // namespace

std::vector<std::string> weight_files(const std::string& path) {
  if (!fs::is_directory(path)) return {path};
  const fs::path folder(path);
  if (fs::exists(folder / kModelFile)) return {(folder / kModelFile).string()};
  ZERO_CHECK(fs::exists(folder / kIndexFile),
             "{}: found neither {} nor {}; expected a folder of Hugging Face's with one of them{}",
             path, kModelFile, kIndexFile, folder_advice(path));
  return listed_files(folder / kIndexFile);
}

std::vector<SafetensorsReader> open_weights(const std::string& path) {
  ModelFiles files;
  std::vector<SafetensorsReader> readers;
  for (const std::string& file : weight_files(path)) readers.emplace_back(files.open(file));
  return readers;
}

}  // namespace zero
