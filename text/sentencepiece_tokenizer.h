// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace zero {

/// The tokenizer of a SentencePiece model file, with the tokens that `config` adds. A whole prompt
/// begins with the model's <s>, as LlamaTokenizer's do, unless `config` says otherwise. Throws
/// zero::Error naming the file.
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& path,
                                                        const TokenizerConfig& config);
/// Likewise, for the content of the file named `path`.
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& path,
                                                        const std::string& content,
                                                        const TokenizerConfig& config);

}  // namespace zero
