// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/json_fields.h"

namespace zero {

/// The chat template of a tokenizer's folder.
struct ChatTemplate {
  std::string text{};                ///< empty if there is none, or none is "default"
  std::string file{};                ///< where it was found, or looked for
  std::vector<std::string> names{};  ///< if there are some and none is "default": theirs
  bool found = false;                ///< `text` is a file's or a field's, be it empty
};

/// The folder of more templates in that of a tokenizer.
inline constexpr const char* kMoreTemplates = "additional_chat_templates";

/// The names of the files *.jinja in `folder`, sorted; none if it is not there. Throws zero::Error
/// naming it if it cannot be read.
std::vector<std::string> template_file_names(const std::string& folder);

/// As transformers takes it: chat_template.jinja, called "default", and the files of the folder
/// additional_chat_templates; without any of them the text or the list in tokenizer_config.json,
/// whose fields are `config`. Of several the one called "default". Throws zero::Error naming file,
/// field, found and expected.
ChatTemplate read_chat_template(const std::string& folder, JsonFields& config);

}  // namespace zero
