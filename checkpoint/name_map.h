// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_config.h"

namespace zero {

/// How the files of one model family call tensors, next to how they were registered. Plain data: a
/// new family is a new function below.
struct NameMap {
  /// A tensor that files may hold again under another name.
  struct Alias {
    std::string name;    ///< in files
    std::string tensor;  ///< that it must equal, in shape and bytes
  };
  /// One tensor of the model that files hold as several, its rows one after another.
  struct Split {
    struct Piece {
      std::string name;  ///< in the place of the component
      std::int64_t rows = 0;
    };
    std::string component;  ///< of the name between dots: "qkv_proj"
    std::vector<Piece> pieces;
  };
  std::string family;
  /// Files may have it before any name, or not.
  std::string prefix{};
  /// Tensors of files that the model has no use for; `*` stands for digits.
  std::vector<std::string> ignored{};
  std::vector<Alias> aliases{};
  std::vector<Split> splits{};

  /// `name` without the prefix.
  std::string_view bare(std::string_view name) const;
  /// Whether the bare name is one that files may hold beside the model's tensors.
  bool ignores(std::string_view bare_name) const;
  /// The alias of that bare name, or null.
  const Alias* alias(std::string_view bare_name) const;
  /// "h.*.attn.bias, h.*.attn.masked_bias, lm_head.weight": for messages.
  std::string ignored_text() const;
};

namespace names {
/// Names in files are the registered names.
NameMap plain();
/// Hugging Face's GPT-2: with or without "transformer."; causal masks as buffers and the tied head
/// are dropped.
NameMap gpt2();
/// Hugging Face's Llama, Mistral and Qwen2: with or without "model.".
NameMap llama(const LlamaConfig& config);
/// The map of a family.
NameMap of(const ModelConfig& config);
}  // namespace names

}  // namespace zero
