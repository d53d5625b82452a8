// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/reads.h"

#include <set>

#include "text/jinja/evaluator.h"

namespace zero::jinja {
namespace {

constexpr const char* kContent = "content";

/// The names in what is assigned to; with "a.b" a itself is used.
void add_targets(const Expression* target, std::set<const Expression*>& targets) {
  if (target == nullptr) return;
  if (target->kind == ExpressionKind::name) targets.insert(target);
  if (target->kind != ExpressionKind::tuple) return;
  for (const Expression* part : target->parts) add_targets(part, targets);
}

/// What the filters and slices take that lead to `expression`.
const Expression* filtered_by(const Expression* expression) {
  while (expression != nullptr && (expression->kind == ExpressionKind::filter ||
                                   expression->kind == ExpressionKind::slice)) {
    expression = expression->parts[0];
  }
  return expression;
}

/// Whether it is m.content, m['content'], or one of `names`, which have such values.
bool is_content(const Expression* expression, const Reads::Names& names) {
  const Expression* const of = filtered_by(expression);
  if (of == nullptr) return false;
  if (of->kind == ExpressionKind::name) return names.contains(of->name);
  if (of->kind == ExpressionKind::attribute) return of->name == kContent;
  if (of->kind != ExpressionKind::item) return false;
  const Text* const key = of->parts[1]->value.text();
  return of->parts[1]->kind == ExpressionKind::literal && key != nullptr &&
         key->bytes() == kContent;
}

bool loops_over_content(const Syntax& syntax) {
  Reads::Names names{kContent};  // also a macro's parameter
  for (const Statement& each : syntax.statements) {
    const bool set = each.kind == StatementKind::assignment && is_content(each.expression, names);
    if (set && each.target->kind == ExpressionKind::name) names.insert(each.target->name);
  }
  for (const Statement& each : syntax.statements) {
    if (each.kind == StatementKind::loop && is_content(each.expression, names)) return true;
  }
  return false;
}

/// Names that the template asks for whether they are there.
Reads::Names asked_for(const Syntax& syntax) {
  Reads::Names names;
  for (const Expression& each : syntax.expressions) {
    const bool asks =
        (each.kind == ExpressionKind::test &&
         (each.name == "defined" || each.name == "undefined")) ||
        (each.kind == ExpressionKind::filter && (each.name == "default" || each.name == "d"));
    if (!asks || each.parts[0] == nullptr) continue;
    if (each.parts[0]->kind == ExpressionKind::name) names.insert(each.parts[0]->name);
  }
  return names;
}

}  // namespace

Reads reads_of(const Syntax& syntax) {
  std::set<const Expression*> targets;
  Reads::Names own{"loop"};
  for (const Statement& each : syntax.statements) {
    add_targets(each.target, targets);
    if (each.kind == StatementKind::macro) own.insert(each.name);
    for (const auto& [name, value] : each.parameters) own.insert(name);
  }
  for (const Expression* target : targets) own.insert(target->name);
  Reads reads;
  for (const Expression& each : syntax.expressions) {
    if (each.kind == ExpressionKind::name && !targets.contains(&each))
      reads.names.insert(each.name);
  }
  const Reads::Names asked = asked_for(syntax);
  for (const std::string& name : reads.names) {
    const bool given = own.contains(name) || !global_function(name).is_undefined();
    if (!given || asked.contains(name)) reads.variables.insert(name);
  }
  reads.parts = loops_over_content(syntax);
  return reads;
}

}  // namespace zero::jinja
