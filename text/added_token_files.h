// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/json_fields.h"
#include "text/added_tokens.h"
#include "text/special_names.h"

namespace zero {

/// The tokens that files beside a tokenizer's own add: "added_tokens_decoder" of
/// tokenizer_config.json, whose fields are `config`; or else added_tokens.json in `folder`, whose
/// tokens are special if they are among `special`.
/// Throws zero::Error naming file, field, found and expected.
std::vector<AddedToken> read_added_tokens(const std::string& folder, JsonFields& config,
                                          const SpecialNames& special);

/// "added_tokens" of the tokenizer.json `path`; none if there is no such file.
std::vector<AddedToken> read_added_tokens_of_json(const std::string& path);

}  // namespace zero
