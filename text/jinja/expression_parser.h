// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/lexer.h"
#include "text/jinja/syntax.h"

namespace zero::jinja {

/// For messages.
std::string described(const Token& token);

/// Reads expressions of a template's tokens, from left to right.
class ExpressionParser {
 public:
  /// Both must outlive it.
  ExpressionParser(const std::vector<Token>& tokens, Syntax& syntax)
      : tokens_(tokens), syntax_(syntax) {}

  enum class Conditions : std::uint8_t { taken, left };
  const Expression* expression(Conditions conditions = Conditions::taken);
  /// One expression, or a tuple of several without brackets.
  const Expression* tuple(Conditions conditions = Conditions::taken);
  /// Names, several of them a tuple; of a set statement also name.attribute.
  enum class Attributes : std::uint8_t { taken, refused };
  const Expression* target(Attributes attributes);
  /// The filters behind `input`, each behind a "|".
  const Expression* filters(const Expression* input);
  /// A filter's name and arguments, behind the "|".
  const Expression* filter(const Expression* input);

  const Token& peek(std::size_t ahead = 0) const;
  Token take();
  bool at_sign(std::string_view sign) const { return peek().is(TokenKind::sign, sign); }
  bool at_name(std::string_view name) const { return peek().is(TokenKind::name, name); }
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect_sign(std::string_view sign);
  std::string expect_name();
  void expect(TokenKind kind, std::string_view what);
  /// One statement or expression around others while it lives; refuses too many around each other.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --parser_.depth_; }

   private:
    ExpressionParser& parser_;
  };

 private:
  Expression& make(ExpressionKind kind, Expressions parts);
  const Expression* either();
  const Expression* both();
  const Expression* negation();
  const Expression* comparison();
  const Expression* sum();
  const Expression* joined();
  const Expression* product();
  const Expression* power();
  enum class Filters : std::uint8_t { taken, left };
  const Expression* unary(Filters filters);
  const Expression* primary();
  const Expression* name();
  const Expression* bracketed();
  const Expression* list();
  const Expression* map();
  const Expression* postfix(const Expression* of);
  const Expression* call(const Expression* of);
  const Expression* subscript(const Expression* of);
  const Expression* filters_and_tests(const Expression* of);
  const Expression* test(const Expression* of);
  void arguments(Expression& of);

  const std::vector<Token>& tokens_;
  Syntax& syntax_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace zero::jinja
