// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/syntax.h"

namespace zero::jinja {

/// A template of chats, in the part of Jinja that such templates use: what transformers'
/// apply_chat_template does (jinja2's ImmutableSandboxedEnvironment with trim_blocks,
/// lstrip_blocks, loop controls and the tag "generation", and its tojson, raise_exception and
/// strftime_now), to the byte, or an error. It reaches nothing but its variables and `now`, and
/// ends within a Budget. Not known, and refused by name where they are used: inheritance, imports,
/// call blocks, recursive loops, autoescaping (and so operations on what "safe" gives), "%" and
/// "**", and filters that templates of chats have no use for.
class Template {
 public:
  using Variables = std::vector<std::pair<std::string, Value>>;

  /// `file` is for messages. Throws zero::Error "FILE: line N: ..." for what is no template, or
  /// is not known.
  Template(std::string file, std::string_view source);

  /// What the template writes. Throws zero::Error "FILE: line N: ..." with the message that
  /// transformers has, if the template refuses the variables.
  Text render(Variables variables, const std::tm& now) const;

 private:
  std::string file_;
  Syntax syntax_;
};

}  // namespace zero::jinja
