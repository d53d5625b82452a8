// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_tree.h"
#include "weights/hf/config.h"
#include "weights/hf/hub.h"
#include "weights/model_files.h"

namespace zero {
namespace {

std::string path_in(const std::string& folder) {
  return (std::filesystem::path(folder) / "config.json").string();
}

/// Whether a config.json of this text describes the model whose own text is `own`.
bool describes(const std::string& path, const std::string& text, const std::string& own) {
  try {
    return hf_config_text(parse_hf_config(path, text)) == own;
  } catch (const Error&) {  // a field that is not computed: why the model is described elsewhere
    return false;
  }
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

DecoderShape read_hf_config(const std::string& folder) {
  return parse_hf_config(path_in(folder), hf_config_source(folder));
}

std::string carried_config(const std::string& folder) {
  return carried_config_text(path_in(folder), hf_config_source(folder));
}

std::string carried_config(const std::string& folder, const DecoderShape& model) {
  const std::string own = hf_config_text(model);
  const std::string path = path_in(folder);
  if (!std::filesystem::is_regular_file(path)) return own;
  const std::string text = read_model_text(path);
  if (describes(path, text, own)) return carried_config_text(path, text);
  auto tree = parse_ordered_tree(text);
  if (!tree || !tree->is_object()) return own;
  const auto fields = nlohmann::json::parse(own);
  for (const auto& [key, value] : fields.items()) {
    if (key != "architectures" && key != "model_type") (*tree)[key] = value;
  }
  // GPT-2's second name of the context, which transformers reads no longer.
  if (tree->contains("n_ctx") && fields.contains("n_positions")) {
    (*tree)["n_ctx"] = fields["n_positions"];
  }
  const std::string changed = tree->dump(2) + "\n";
  return describes(path, changed, own) ? carried_config_text(path, changed) : own;
}

}  // namespace zero
