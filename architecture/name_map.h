// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// Maps the names of tensors in one model family's files to their registered names. Plain data.
struct NameMap {
  /// A copy of another tensor that files may hold under a second name.
  struct Alias {
    std::string name;    ///< in files
    std::string tensor;  ///< the tensor that the copy must equal, in shape and bytes
  };
  /// One tensor of the model that files hold as several, by consecutive rows.
  struct Split {
    struct Piece {
      std::string name;  ///< replaces the component
      std::int64_t rows = 0;
    };
    std::string component;  ///< of the dotted name: "qkv_proj"
    std::vector<Piece> pieces;
  };
  std::string family;
  /// Optional in files, before any name.
  std::string prefix{};
  /// Tensors of files that the model does not use; `*` stands for digits.
  std::vector<std::string> ignored{};
  /// Likewise, by the last components of their names.
  std::vector<std::string> ignored_ends{};
  std::vector<Alias> aliases{};
  std::vector<Split> splits{};

  /// `name` without the prefix.
  std::string_view bare(std::string_view name) const;
  /// Whether files may hold the bare name in addition to the model's tensors.
  bool ignores(std::string_view bare_name) const;
  /// The alias with that bare name, or null.
  const Alias* alias(std::string_view bare_name) const;
  /// "h.*.attn.bias, h.*.attn.masked_bias, lm_head.weight", for messages.
  std::string ignored_text() const;
};

namespace names {
/// The identity: files use the registered names.
NameMap plain();
}  // namespace names

}  // namespace zero
