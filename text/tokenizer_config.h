// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/special_names.h"
#include "text/tokenizer.h"

namespace zero {

/// The chat template of a tokenizer's folder.
struct ChatTemplate {
  std::string text{};                ///< empty if there is none, or none is "default"
  std::string file{};                ///< where it was found, or looked for
  std::vector<std::string> names{};  ///< if there are some and none is "default": theirs
  bool found = false;                ///< `text` is a file's or a field's, be it empty
};

/// What tokenizer_config.json and the files beside it (docs/tokenizers.md) in a tokenizer's folder
/// say; each may be missing.
struct TokenizerConfig {
  std::string file;        ///< tokenizer_config.json's path, for messages
  SpecialNames special{};  ///< also variables of chat templates
  std::optional<bool> add_bos_token{};
  bool legacy = true;                      ///< SentencePiece's space also after special tokens
  std::vector<AddedToken> added_tokens{};  ///< of added_tokens.json if the config has none
  ChatTemplate chat_template{};
};

/// Throws zero::Error naming file, field, found and expected.
TokenizerConfig read_tokenizer_config(const std::string& folder);

/// The folder of the tokenizer `name`, as for make_tokenizer, but for "bytes".
std::string tokenizer_folder(const std::string& name);

/// make_tokenizer(name), whose folder's config is `config`.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, const TokenizerConfig& config);

/// The ids that end a generated text: eos_token_id of generation_config.json, or else config.json,
/// in a model's folder; none if neither has it. Throws zero::Error naming file, found and expected.
std::vector<std::uint32_t> read_end_tokens(const std::string& folder);

/// Puts an added token into `table`. The token that ends texts becomes special, however a file
/// marks it, as in transformers.
void add_token(const TokenizerConfig& config, AddedToken& token, TokenTable& table);

/// Puts the tokens that begin and end a text into `table`, which has those of the tokenizer's own
/// file. Throws zero::Error if one has no id.
void apply_config(const TokenizerConfig& config, TokenTable& table);

/// "added_tokens" of the tokenizer.json `path`; none if there is no such file.
std::vector<AddedToken> read_added_tokens_of_json(const std::string& path);

/// The file of a processor's template, for a folder whose tokenizer has none.
inline constexpr const char* kTemplateJson = "chat_template.json";
/// The folder of more templates in that of a tokenizer.
inline constexpr const char* kMoreTemplates = "additional_chat_templates";

/// The names of the files *.jinja in `folder`, sorted; none if it is not there. Throws zero::Error
/// naming it if it cannot be read.
std::vector<std::string> template_file_names(const std::string& folder);

}  // namespace zero
