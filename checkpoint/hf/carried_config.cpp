// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf/carried_config.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/hf/config.h"
#include "checkpoint/json_tree.h"
#include "checkpoint/model_files.h"

namespace zero {
namespace {

/// Whether a config.json of this text describes the model whose own text is `own`.
bool describes(const std::string& path, const std::string& text, const std::string& own) {
  try {
    return hf_config_text(parse_hf_config(path, text)) == own;
  } catch (const Error&) {  // a field that is not computed: why the model is described elsewhere
    return false;
  }
}

}  // namespace

std::string carried_config(const std::string& folder, const ModelConfig& model) {
  const std::string own = hf_config_text(model);
  const std::string path = (std::filesystem::path(folder) / "config.json").string();
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
