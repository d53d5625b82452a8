// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <span>

#include "base/error.h"
#include "base/message_text.h"
#include "text/jinja/expression_parser.h"

namespace zero::jinja {
namespace {

using Names = std::span<const std::string_view>;
using Attributes = ExpressionParser::Attributes;
using Conditions = ExpressionParser::Conditions;

/// Reads the statements of a template.
class Parser {
 public:
  explicit Parser(std::string_view source)
      : tokens_(tokens_of(source)), expressions_(tokens_, syntax_) {}

  Syntax run() {
    syntax_.body = statements({});
    return std::move(syntax_);
  }

 private:
  Statement& make(StatementKind kind) {
    syntax_.statements.push_back({.kind = kind, .line = expressions_.peek().line});
    return syntax_.statements.back();
  }
  void end_tag() { expressions_.expect(TokenKind::block_end, "the end of the tag"); }

  /// Statements up to a tag that begins with one of `ends`, whose name is not taken yet; up to the
  /// end of the template without any.
  Statements statements(Names ends) {
    const ExpressionParser::Level level(expressions_);
    Statements all;
    for (;;) {
      const Token token = expressions_.take();
      switch (token.kind) {
        case TokenKind::data: {
          Statement& data = make(StatementKind::data);
          data.value = Value::text(token.text);
          all.push_back(&data);
          break;
        }
        case TokenKind::variable_begin: {
          Statement& output = make(StatementKind::output);
          output.expression = expressions_.tuple();
          expressions_.expect(TokenKind::variable_end, "the end of the tag");
          all.push_back(&output);
          break;
        }
        case TokenKind::block_begin:
          if (std::ranges::any_of(ends, [&](auto end) { return expressions_.at_name(end); })) {
            return all;
          }
          all.push_back(statement());
          break;
        default:
          if (ends.empty()) return all;
          refuse(token.line, fmt::format("the template ends before '{}'", ends.back()));
      }
    }
  }

  /// Those up to the one `end`, whose tag is taken too.
  Statements block(std::string_view end) {
    Statements body = statements({&end, 1});
    expressions_.take();
    end_tag();
    return body;
  }

  const Statement* statement() {
    const int line = expressions_.peek().line;
    const std::string name = expressions_.expect_name();
    using Read = const Statement* (Parser::*)();
    constexpr std::array<std::pair<std::string_view, Read>, 9> kStatements{
        {{"if", &Parser::condition},
         {"for", &Parser::loop},
         {"set", &Parser::assignment},
         {"macro", &Parser::macro},
         {"filter", &Parser::filtered},
         {"with", &Parser::with},
         {"generation", &Parser::generation},
         {"break", &Parser::leave},
         {"continue", &Parser::next}}};
    const auto* found =
        std::ranges::find(kStatements, name, &std::pair<std::string_view, Read>::first);
    if (found != kStatements.end()) return (this->*found->second)();
    constexpr std::array<std::string_view, 9> kOthers{
        "call", "block", "extends", "include", "import", "from", "autoescape", "trans", "print"};
    const bool known = std::ranges::find(kOthers, name) != kOthers.end();
    refuse(line, known ? fmt::format("the statement '{}' is not known here", name)
                       : fmt::format("Encountered unknown tag '{}'.", printable_line(name)));
  }

  const Statement* condition() {
    const ExpressionParser::Level level(expressions_);
    constexpr std::array<std::string_view, 3> kEnds{"elif", "else", "endif"};
    Statement& made = make(StatementKind::condition);
    made.expression = expressions_.tuple(Conditions::left);
    end_tag();
    made.body = statements(kEnds);
    const std::string end = expressions_.take().text;
    if (end == "elif") {
      made.otherwise = {condition()};
      return &made;
    }
    end_tag();
    if (end == "else") made.otherwise = block("endif");
    return &made;
  }

  const Statement* loop() {
    constexpr std::array<std::string_view, 2> kEnds{"else", "endfor"};
    Statement& made = make(StatementKind::loop);
    made.target = expressions_.target(Attributes::refused);
    if (!expressions_.skip_name("in")) refuse(made.line, "expected 'in' in a for statement");
    made.expression = expressions_.tuple(Conditions::left);
    if (expressions_.skip_name("if")) made.filter = expressions_.expression();
    made.recursive = expressions_.skip_name("recursive");
    if (made.recursive) refuse(made.line, "recursive loops are not known here; write a macro");
    end_tag();
    ++loops_;
    made.body = statements(kEnds);
    --loops_;
    const bool otherwise = expressions_.take().text == "else";
    end_tag();
    if (otherwise) made.otherwise = block("endfor");
    return &made;
  }

  const Statement* assignment() {
    Statement& made = make(StatementKind::assignment);
    made.target = expressions_.target(Attributes::taken);
    if (expressions_.skip_sign("=")) {
      made.expression = expressions_.tuple();
      end_tag();
      return &made;
    }
    made.kind = StatementKind::capture;
    if (expressions_.at_sign("|")) made.expression = expressions_.filters(nullptr);
    end_tag();
    made.body = block("endset");
    return &made;
  }

  const Statement* macro() {
    Statement& made = make(StatementKind::macro);
    made.name = expressions_.expect_name();
    expressions_.expect_sign("(");
    for (bool first = true; !expressions_.at_sign(")"); first = false) {
      if (!first) expressions_.expect_sign(",");
      if (expressions_.at_sign(")")) break;
      const std::string name = expressions_.expect_name();
      const Expression* usual = expressions_.skip_sign("=") ? expressions_.expression() : nullptr;
      if (usual == nullptr && !made.parameters.empty() && made.parameters.back().second) {
        refuse(made.line, "non-default argument follows default argument");
      }
      made.parameters.emplace_back(name, usual);
    }
    expressions_.expect_sign(")");
    end_tag();
    const int loops = std::exchange(loops_, 0);
    made.body = block("endmacro");
    loops_ = loops;
    return &made;
  }

  const Statement* filtered() {
    Statement& made = make(StatementKind::filtered);
    made.expression = expressions_.filters(expressions_.filter(nullptr));
    end_tag();
    made.body = block("endfilter");
    return &made;
  }

  const Statement* with() {
    Statement& made = make(StatementKind::scope);
    while (expressions_.peek().kind != TokenKind::block_end) {
      if (!made.parameters.empty()) expressions_.expect_sign(",");
      std::string name = expressions_.expect_name();
      expressions_.expect_sign("=");
      made.parameters.emplace_back(std::move(name), expressions_.expression());
    }
    end_tag();
    made.body = block("endwith");
    return &made;
  }

  const Statement* generation() {
    Statement& made = make(StatementKind::scope);
    end_tag();
    made.body = block("endgeneration");
    return &made;
  }

  const Statement* leave() { return jump(StatementKind::leave); }
  const Statement* next() { return jump(StatementKind::next); }
  const Statement* jump(StatementKind kind) {
    if (loops_ == 0) refuse(expressions_.peek().line, "break and continue stand outside of a loop");
    const Statement& made = make(kind);
    end_tag();
    return &made;
  }

  Syntax syntax_;
  std::vector<Token> tokens_;
  ExpressionParser expressions_;
  int loops_ = 0;  // around
};

}  // namespace

Syntax parse(std::string_view source) { return Parser(source).run(); }

}  // namespace zero::jinja
