// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "base/error.h"
#include "checkpoint/hf/config.h"
#include "checkpoint/hf/hub.h"
#include "checkpoint/model_files.h"

namespace zero {
namespace {

std::string path_in(const std::string& folder) {
  return (std::filesystem::path(folder) / "config.json").string();
}

}  // namespace

std::string hf_config_source(const std::string& folder) {
  const std::string path = path_in(folder);
  try {
    return read_model_text(path);
  } catch (const Error& error) {
    fail("{}: cannot be read; expected the config.json of a Hugging Face model ({}){}", path,
         error.what(), folder_advice(folder));
  }
}

HfModel read_hf_model(const std::string& folder) {
  return parse_hf_model(path_in(folder), hf_config_source(folder));
}

ModelConfig read_hf_config(const std::string& folder) {
  return parse_hf_config(path_in(folder), hf_config_source(folder));
}

std::string carried_config(const std::string& folder) {
  return carried_config_text(path_in(folder), hf_config_source(folder));
}

}  // namespace zero
