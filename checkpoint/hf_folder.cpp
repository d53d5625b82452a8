// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_folder.h"

#include <unistd.h>

#include <filesystem>

#include "architecture/family.h"
#include "base/error.h"
#include "checkpoint/weights.h"
#include "files/replace_file.h"
#include "weights/hf/config.h"
#include "weights/text_file.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kConfig = "config.json";

// Rank 0's part: replaces `path` by a file with `text`.
void write_whole(const fs::path& path, const std::string& text) {
  const std::string partial = path.string() + ".partial";
  write_text(files::disk(), partial, text);
  files::replace_file(files::disk(), partial, path.string());
}

}  // namespace

bool names_folder(const std::string& path) { return path.ends_with('/'); }

void check_folder_target(const std::string& folder) {
  // parent_path() of "a/b/" is "a/b", whose parent_path() is "a".
  const fs::path bare = fs::absolute(folder).parent_path();
  ZERO_CHECK(!fs::exists(bare) || fs::is_directory(bare),
             "{}: is there already and is not a folder", bare.string());
  if (fs::exists(bare)) {
    for (const char* name : {kWeights, kConfig}) {
      const std::string path = (fs::path(folder) / name).string();
      files::check_target(files::disk(), path);
      files::check_target(files::disk(), path + ".partial");
    }
    return;
  }
  const fs::path parent = bare.parent_path();
  ZERO_CHECK(fs::is_directory(parent) && ::access(parent.c_str(), W_OK) == 0,
             "{}: cannot be made in {}; expected an existing folder that may be written to", folder,
             parent.string());
}

void save_hf_folder(Engine& engine, const std::string& folder, const DecoderShape& shape,
                    const std::map<std::string, std::string>& beside) {
  const bool first = engine.communicator().rank() == 0;
  together(engine, "save_weights", [&] {
    if (first) fs::create_directory(fs::path(folder).parent_path());
  });
  save_weights(engine, (fs::path(folder) / kWeights).string(), file_names(shape));
  together(engine, "save_weights", [&] {
    if (!first) return;
    std::map<std::string, std::string> small = beside;
    small.try_emplace(kConfig, hf_config_text(shape));
    for (const auto& [name, content] : small) write_whole(fs::path(folder) / name, content);
  });
}

}  // namespace zero
