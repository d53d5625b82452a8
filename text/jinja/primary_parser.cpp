// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "base/message_text.h"
#include "text/jinja/expression_parser.h"

namespace zero::jinja {

const Expression* ExpressionParser::primary() {
  switch (peek().kind) {
    case TokenKind::name:
      return name();
    case TokenKind::string: {
      std::string text;
      while (peek().kind == TokenKind::string) text += take().text;
      Expression& made = make(ExpressionKind::literal, {});
      made.value = Value::text(text);
      return &made;
    }
    case TokenKind::integer: {
      const Token token = take();
      std::int64_t number = 0;
      const char* end = token.text.data() + token.text.size();
      if (std::from_chars(token.text.data(), end, number).ec != std::errc()) {
        refuse(token.line, fmt::format("the number {} is too large", printable_line(token.text)));
      }
      Expression& made = make(ExpressionKind::literal, {});
      made.value = Value::integer(number);
      return &made;
    }
    case TokenKind::real: {
      Expression& made = make(ExpressionKind::literal, {});
      made.value = Value(Value::Variant(std::strtod(take().text.c_str(), nullptr)));
      return &made;
    }
    default:
      break;
  }
  if (skip_sign("(")) return bracketed();
  if (skip_sign("[")) return list();
  if (skip_sign("{")) return map();
  refuse(peek().line, fmt::format("expected an expression, found {}", described(peek())));
}

const Expression* ExpressionParser::name() {
  const std::string name = take().text;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    Expression& made = make(ExpressionKind::literal, {});
    made.value = Value::boolean(name == "true" || name == "True");
    return &made;
  }
  if (name == "none" || name == "None") {
    Expression& made = make(ExpressionKind::literal, {});
    made.value = Value::none();
    return &made;
  }
  Expression& made = make(ExpressionKind::name, {});
  made.name = name;
  return &made;
}

const Expression* ExpressionParser::bracketed() {
  if (skip_sign(")")) return &make(ExpressionKind::tuple, {});
  const Expression* value = tuple();
  expect_sign(")");
  return value;
}

const Expression* ExpressionParser::list() {
  Expressions parts;
  while (!at_sign("]")) {
    if (!parts.empty()) expect_sign(",");
    if (at_sign("]")) break;
    parts.push_back(expression());
  }
  expect_sign("]");
  return &make(ExpressionKind::list, std::move(parts));
}

const Expression* ExpressionParser::map() {
  Expressions parts;
  while (!at_sign("}")) {
    if (!parts.empty()) expect_sign(",");
    if (at_sign("}")) break;
    parts.push_back(expression());
    expect_sign(":");
    parts.push_back(expression());
  }
  expect_sign("}");
  return &make(ExpressionKind::map, std::move(parts));
}

const Expression* ExpressionParser::postfix(const Expression* of) {
  for (;;) {
    if (skip_sign(".")) {
      if (peek().kind == TokenKind::integer) {
        of = &make(ExpressionKind::item, {of, primary()});
        continue;
      }
      const std::string name = expect_name();
      Expression& made = make(ExpressionKind::attribute, {of});
      made.name = name;
      of = &made;
    } else if (skip_sign("[")) {
      of = subscript(of);
    } else if (skip_sign("(")) {
      of = call(of);
    } else {
      return of;
    }
  }
}

const Expression* ExpressionParser::call(const Expression* of) {
  Expression& made = make(ExpressionKind::call, {of});
  arguments(made);
  return &made;
}

const Expression* ExpressionParser::subscript(const Expression* of) {
  Expressions parts{of, nullptr, nullptr, nullptr};
  std::size_t part = 1;
  for (; !at_sign("]"); ++part) {
    if (part > 3) refuse(peek().line, "a slice has more than three parts");
    if (!at_sign(":")) parts[part] = expression();
    if (at_sign("]")) break;
    expect_sign(":");
    if (at_sign("]")) {
      ++part;
      break;
    }
  }
  expect_sign("]");
  if (part == 1 && parts[1] == nullptr) refuse(peek().line, "expected subscript expression");
  if (part == 1) return &make(ExpressionKind::item, {of, parts[1]});
  return &make(ExpressionKind::slice, std::move(parts));
}

const Expression* ExpressionParser::filters_and_tests(const Expression* of) {
  for (;;) {
    if (at_sign("|")) {
      of = filters(of);
    } else if (skip_name("is")) {
      of = test(of);
    } else if (skip_sign("(")) {
      of = call(of);
    } else {
      return of;
    }
  }
}

const Expression* ExpressionParser::filters(const Expression* input) {
  while (skip_sign("|")) input = filter(input);
  return input;
}

const Expression* ExpressionParser::filter(const Expression* input) {
  std::string name = expect_name();
  while (skip_sign(".")) name = fmt::format("{}.{}", name, expect_name());
  Expression& made = make(ExpressionKind::filter, {input});
  made.name = std::move(name);
  if (skip_sign("(")) arguments(made);
  return &made;
}

const Expression* ExpressionParser::test(const Expression* of) {
  const bool negated = skip_name("not");
  const std::string name = expect_name();
  Expression& made = make(ExpressionKind::test, {of});
  made.name = name;
  const TokenKind next = peek().kind;
  const bool word =
      next == TokenKind::name && !at_name("else") && !at_name("or") && !at_name("and");
  if (skip_sign("(")) {
    arguments(made);
  } else if (word || next == TokenKind::string || next == TokenKind::integer ||
             next == TokenKind::real || at_sign("[") || at_sign("{")) {
    if (at_name("is")) refuse(peek().line, "You cannot chain multiple tests with is");
    made.parts.push_back(postfix(primary()));
  }
  return negated ? &make(ExpressionKind::negation, {&made}) : &made;
}

void ExpressionParser::arguments(Expression& of) {
  for (bool first = true; !at_sign(")"); first = false) {
    if (!first) expect_sign(",");
    if (at_sign(")")) break;
    if (at_sign("**")) {
      refuse(peek().line, "arguments with ** are not known here; give them one by one");
    }
    if (skip_sign("*")) {
      of.parts.push_back(&make(ExpressionKind::spread, {expression()}));
      continue;
    }
    if (peek().kind == TokenKind::name && peek(1).is(TokenKind::sign, "=")) {
      std::string name = take().text;
      ++at_;
      of.named.emplace_back(std::move(name), expression());
    } else {
      if (!of.named.empty()) refuse(peek().line, "an argument follows those with names");
      of.parts.push_back(expression());
    }
  }
  expect_sign(")");
}

}  // namespace zero::jinja
