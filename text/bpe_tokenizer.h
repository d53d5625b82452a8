// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace zero {

/// The tokenizer of a tokenizer.json (text/tokenizer_json.h says which are computed).
/// Throws zero::Error naming file, field, found and expected.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(const std::string& path,
                                              const TokenizerConfig& config);
/// Likewise, for the content `text` of the file named `path`.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(const std::string& path, const std::string& text,
                                              const TokenizerConfig& config);

}  // namespace zero
