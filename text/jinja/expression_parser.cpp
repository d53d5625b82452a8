// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/message_text.h"

namespace zero::jinja {
namespace {

constexpr int kDeepest = 200;  // levels of the parser

}  // namespace

std::string described(const Token& token) {
  switch (token.kind) {
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::variable_end:
    case TokenKind::block_end:
      return "the end of the tag";
    default:
      return fmt::format("'{}'", printable_line(token.text));
  }
}

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.depth_ > kDeepest) {
    const int line = parser_.peek().line;
    --parser_.depth_;
    refuse(line, fmt::format("the template nests more than {} levels", kDeepest));
  }
}

const Token& ExpressionParser::peek(std::size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

Token ExpressionParser::take() {
  Token token = peek();
  ++at_;
  return token;
}

bool ExpressionParser::skip_sign(std::string_view sign) {
  if (!at_sign(sign)) return false;
  ++at_;
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  ++at_;
  return true;
}

void ExpressionParser::expect_sign(std::string_view sign) {
  if (skip_sign(sign)) return;
  refuse(peek().line, fmt::format("expected '{}', found {}", sign, described(peek())));
}

std::string ExpressionParser::expect_name() {
  if (peek().kind == TokenKind::name) return take().text;
  refuse(peek().line, fmt::format("expected a name, found {}", described(peek())));
}

void ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (peek().kind != kind) {
    refuse(peek().line, fmt::format("expected {}, found {}", what, described(peek())));
  }
  ++at_;
}

Expression& ExpressionParser::make(ExpressionKind kind, Expressions parts) {
  syntax_.expressions.push_back({.kind = kind, .line = peek().line, .parts = std::move(parts)});
  return syntax_.expressions.back();
}

const Expression* ExpressionParser::expression(Conditions conditions) {
  const Level level(*this);
  const Expression* value = either();
  while (conditions == Conditions::taken && skip_name("if")) {
    const Expression* condition = either();
    const Expression* otherwise = skip_name("else") ? expression() : nullptr;
    value = &make(ExpressionKind::choice, {condition, value, otherwise});
  }
  return value;
}

const Expression* ExpressionParser::tuple(Conditions conditions) {
  Expressions parts{expression(conditions)};
  bool several = false;
  while (skip_sign(",")) {
    several = true;
    const bool end = peek().kind == TokenKind::block_end ||
                     peek().kind == TokenKind::variable_end || at_sign(")") || at_sign("=") ||
                     at_name("in");
    if (end) break;
    parts.push_back(expression(conditions));
  }
  return several ? &make(ExpressionKind::tuple, std::move(parts)) : parts[0];
}

const Expression* ExpressionParser::target(Attributes attributes) {
  const Level level(*this);
  Expressions parts;
  bool several = false;
  do {
    if (!parts.empty() && peek().kind != TokenKind::name && !at_sign("(")) break;
    if (skip_sign("(")) {
      parts.push_back(target(Attributes::refused));
      expect_sign(")");
      continue;
    }
    Expression& name = make(ExpressionKind::name, {});
    name.name = expect_name();
    parts.push_back(&name);
    if (attributes == Attributes::taken && skip_sign(".")) {
      Expression& attribute = make(ExpressionKind::attribute, {&name});
      attribute.name = expect_name();
      parts.back() = &attribute;
    }
  } while (skip_sign(",") && (several = true));
  return several ? &make(ExpressionKind::tuple, std::move(parts)) : parts[0];
}

const Expression* ExpressionParser::either() {
  const Expression* left = both();
  while (skip_name("or")) left = &make(ExpressionKind::either, {left, both()});
  return left;
}

const Expression* ExpressionParser::both() {
  const Expression* left = negation();
  while (skip_name("and")) left = &make(ExpressionKind::both, {left, negation()});
  return left;
}

const Expression* ExpressionParser::negation() {
  const Level level(*this);
  if (skip_name("not")) return &make(ExpressionKind::negation, {negation()});
  return comparison();
}

const Expression* ExpressionParser::comparison() {
  constexpr std::array<std::string_view, 6> kSigns{"==", "!=", "<", "<=", ">", ">="};
  Expressions parts{sum()};
  std::vector<std::string> signs;
  for (;;) {
    if (peek().kind == TokenKind::sign && std::ranges::find(kSigns, peek().text) != kSigns.end()) {
      signs.push_back(take().text);
    } else if (skip_name("in")) {
      signs.emplace_back("in");
    } else if (at_name("not") && peek(1).is(TokenKind::name, "in")) {
      at_ += 2;
      signs.emplace_back("not in");
    } else {
      break;
    }
    parts.push_back(sum());
  }
  if (signs.empty()) return parts[0];
  Expression& made = make(ExpressionKind::comparison, std::move(parts));
  made.signs = std::move(signs);
  return &made;
}

const Expression* ExpressionParser::sum() {
  const Expression* left = joined();
  while (at_sign("+") || at_sign("-")) {
    const std::string sign = take().text;
    Expression& made = make(ExpressionKind::operation, {left, joined()});
    made.name = sign;
    left = &made;
  }
  return left;
}

const Expression* ExpressionParser::joined() {
  Expressions parts{product()};
  while (skip_sign("~")) parts.push_back(product());
  return parts.size() == 1 ? parts[0] : &make(ExpressionKind::joined, std::move(parts));
}

const Expression* ExpressionParser::product() {
  const Expression* left = power();
  while (at_sign("*") || at_sign("/") || at_sign("//") || at_sign("%")) {
    const std::string sign = take().text;
    Expression& made = make(ExpressionKind::operation, {left, power()});
    made.name = sign;
    left = &made;
  }
  return left;
}

const Expression* ExpressionParser::power() {
  const Expression* left = unary(Filters::taken);
  while (skip_sign("**")) {
    Expression& made = make(ExpressionKind::operation, {left, unary(Filters::taken)});
    made.name = "**";
    left = &made;
  }
  return left;
}

const Expression* ExpressionParser::unary(Filters filters) {
  const Level level(*this);
  const Expression* value = nullptr;
  if (at_sign("-") || at_sign("+")) {
    const std::string sign = take().text;
    Expression& made = make(ExpressionKind::sign, {unary(Filters::left)});
    made.name = sign;
    value = &made;
  } else {
    value = primary();
  }
  value = postfix(value);
  return filters == Filters::taken ? filters_and_tests(value) : value;
}

}  // namespace zero::jinja
