// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace zero::jinja {

struct Expression;
struct Statement;
using Expressions = std::vector<const Expression*>;
using Statements = std::vector<const Statement*>;

enum class ExpressionKind : std::uint8_t {
  literal,     ///< value
  name,        ///< name
  list,        ///< parts
  tuple,       ///< parts
  map,         ///< parts: key, value, key, value, ...
  attribute,   ///< parts[0].name
  item,        ///< parts[0][parts[1]]
  slice,       ///< parts[0][parts[1]:parts[2]:parts[3]], null where left out
  call,        ///< parts[0](parts[1], ..., named)
  filter,      ///< parts[0] | name(parts[1], ..., named); null: that of a filter block
  test,        ///< parts[0] is name(parts[1], ..., named)
  negation,    ///< not parts[0]
  sign,        ///< name, "+" or "-", before parts[0]
  both,        ///< parts[0] and parts[1]
  either,      ///< parts[0] or parts[1]
  choice,      ///< parts[1] if parts[0] else parts[2], null if left out
  comparison,  ///< parts[0] names[0] parts[1] names[1] parts[2] ...
  operation,   ///< parts[0] name parts[1]
  spread,      ///< *parts[0], of arguments
  joined       ///< parts[0] ~ parts[1] ~ ...
};

struct Expression {
  ExpressionKind kind = ExpressionKind::literal;
  int line = 1;
  std::string name{};
  Value value{};
  Expressions parts{};
  std::vector<std::pair<std::string, const Expression*>> named{};
  std::vector<std::string> signs{};
};

enum class StatementKind : std::uint8_t {
  data,        ///< value
  output,      ///< value of `expression`
  condition,   ///< if expression: body, else: otherwise
  loop,        ///< for target in expression if filter: body, else: otherwise
  assignment,  ///< set target = expression
  capture,     ///< set target | expression: body
  filtered,    ///< filter expression: body
  scope,       ///< with target, ... = expression, ...: body; and the body of {% generation %}
  macro,       ///< name, parameters with defaults: body
  leave,       ///< break
  next         ///< continue
};

struct Statement {
  StatementKind kind = StatementKind::data;
  int line = 1;
  std::string name{};
  Value value{};
  const Expression* expression = nullptr;
  const Expression* filter = nullptr;
  const Expression* target = nullptr;
  std::vector<std::pair<std::string, const Expression*>> parameters{};  ///< null: no default
  bool recursive = false;
  Statements body{};
  Statements otherwise{};
};

/// A parsed template of chats: the statements, and what owns them all. The part of Jinja that such
/// templates use, as transformers' apply_chat_template has it (jinja2's
/// ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, loop controls and the tag
/// "generation", and its tojson, raise_exception and strftime_now), to the byte, or an error. Not
/// known, and refused by name where they are used: inheritance, imports, call blocks, recursive
/// loops, autoescaping (and so operations on what "safe" gives), "%" and "**", and filters that
/// templates of chats have no use for.
struct Syntax {
  std::deque<Expression> expressions{};
  std::deque<Statement> statements{};
  Statements body{};
};

/// Throws zero::Error "line N: ..." if `source` is not Jinja, or naming the part of Jinja that is
/// not known here.
Syntax parse(std::string_view source);

}  // namespace zero::jinja
