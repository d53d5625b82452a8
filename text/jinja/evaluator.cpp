// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/evaluator.h"

#include <algorithm>

#include "text/jinja/lexer.h"

namespace zero::jinja {

class Evaluator::Inner {
 public:
  Inner(Evaluator& evaluator, std::shared_ptr<Scope> around)
      : evaluator_(evaluator), before_(evaluator.scope_) {
    evaluator_.budget_.work(sizeof(Scope));
    evaluator_.scope_ = std::make_shared<Scope>(Scope{.around = std::move(around)});
  }
  explicit Inner(Evaluator& evaluator) : Inner(evaluator, evaluator.scope_) {}
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;
  ~Inner() { evaluator_.scope_ = std::move(before_); }

 private:
  Evaluator& evaluator_;
  std::shared_ptr<Scope> before_;
};

class Evaluator::Chosen {
 public:
  Chosen(Evaluator& evaluator, Origin by)
      : evaluator_(evaluator), before_(evaluator.chosen_by_), written_(evaluator.out_.size()) {
    evaluator_.chosen_by_ = joined(before_, by);
  }
  Chosen(const Chosen&) = delete;
  Chosen& operator=(const Chosen&) = delete;
  ~Chosen() {
    if (evaluator_.out_.size() == written_) evaluator_.out_.append("", evaluator_.chosen_by_);
    evaluator_.chosen_by_ = before_;
  }

 private:
  Evaluator& evaluator_;
  const Origin before_;
  const std::size_t written_;  // bytes
};

Evaluator::Evaluator(Budget budget, const std::tm& now) : budget_(budget), now_(now) {}

Text Evaluator::run(const Syntax& syntax, std::vector<std::pair<std::string, Value>> variables) {
  scope_->names = std::move(variables);
  try {
    const Inner inner(*this);
    execute(syntax.body);
  } catch (const Error& error) {
    refuse(line_, error.what());
  }
  return std::move(out_);
}

Value Evaluator::new_namespace(std::vector<std::pair<std::string, Value>> items) {
  budget_.make(sizeof(Namespace) + items.size() * sizeof(items[0]));
  return {Value::Variant(&namespaces_.emplace_back(Namespace{std::move(items)}))};
}

Evaluator::Flow Evaluator::execute(const Statements& statements) {
  for (const Statement* const statement : statements) {
    if (const Flow flow = execute(*statement); flow != Flow::on) return flow;
  }
  return Flow::on;
}

Evaluator::Flow Evaluator::execute(const Statement& statement) {
  const Budget::Level level(budget_);
  budget_.work();
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::data:
      budget_.make(statement.value.text()->size());
      out_.append(*statement.value.text());
      break;
    case StatementKind::output: {
      const Text text = shown(evaluate(*statement.expression));
      budget_.make(text.size());
      out_.append(text);
      break;
    }
    case StatementKind::condition:
      return execute_condition(statement);
    case StatementKind::loop:
      return execute_loop(statement);
    case StatementKind::assignment:
      assign(*statement.target, evaluate(*statement.expression));
      break;
    case StatementKind::capture:
    case StatementKind::filtered: {
      Value text(captured(statement.body));
      if (statement.expression != nullptr) {
        filtered_ = std::move(text);
        text = evaluate(*statement.expression);
      }
      if (statement.kind == StatementKind::capture) {
        assign(*statement.target, text);
      } else {
        out_.append(shown(text));
      }
      break;
    }
    case StatementKind::scope:
      return execute_scope(statement);
    case StatementKind::macro:
      budget_.make(sizeof(Macro) + 1024);  // with the scope that it keeps
      set(statement.name,
          {Value::Variant(&std::as_const(macros_.emplace_back(Macro{&statement, scope_})))});
      break;
    case StatementKind::leave:
      return Flow::leave;
    case StatementKind::next:
      return Flow::next;
  }
  return Flow::on;
}

Evaluator::Flow Evaluator::execute_condition(const Statement& statement) {
  const Value value = evaluate(*statement.expression);
  const Chosen region(*this, value.origin());
  return execute(truth(value) ? statement.body : statement.otherwise);
}

Evaluator::Flow Evaluator::execute_loop(const Statement& statement) {
  budget_.make(sizeof(Loop));
  Loop& loop = loop_states_.emplace_back();
  take_items(statement, loop);
  loop.depth = ++loops_;
  const Chosen region(*this, loop.origin);
  Flow flow = Flow::on;
  for (; loop.index < loop.items.size() && flow != Flow::leave; ++loop.index) {
    const Inner inner(*this);
    out_.append("", loop.origin);  // an item before it may be left out
    set("loop", {Value::Variant(&loop)});
    line_ = statement.line;
    assign(*statement.target, loop.items[loop.index]);
    flow = execute(statement.body);
  }
  --loops_;
  out_.append("", loop.origin);
  if (loop.items.empty()) {
    const Inner inner(*this);
    return execute(statement.otherwise);
  }
  return Flow::on;
}

void Evaluator::take_items(const Statement& statement, Loop& loop) {
  const Value value = evaluate(*statement.expression);
  std::vector<Value> items = items_of(value);
  loop.origin = value.origin();
  for (Value& each : items) {
    if (statement.filter != nullptr) {
      const Inner inner(*this);
      assign(*statement.target, each);
      const Value kept = evaluate(*statement.filter);
      loop.origin = joined(loop.origin, kept.origin());
      if (!truth(kept)) continue;
    }
    loop.items.push_back(std::move(each));
  }
}

Evaluator::Flow Evaluator::execute_scope(const Statement& statement) {
  std::vector<Value> values;
  for (const auto& [name, expression] : statement.parameters)
    values.push_back(evaluate(*expression));
  const Inner inner(*this);
  for (std::size_t i = 0; i < values.size(); ++i) set(statement.parameters[i].first, values[i]);
  return execute(statement.body);
}

Text Evaluator::captured(const Statements& statements) {
  const Inner inner(*this);
  Text before = std::exchange(out_, Text());
  execute(statements);
  return std::exchange(out_, std::move(before));
}

void Evaluator::set(const std::string& name, Value value) {
  budget_.work(scope_->names.size());
  const auto found = std::ranges::find(scope_->names, name, &std::pair<std::string, Value>::first);
  if (found != scope_->names.end()) {
    found->second = std::move(value);
    return;
  }
  budget_.work(sizeof(*found));
  scope_->names.emplace_back(name, std::move(value));
}

void Evaluator::assign(const Expression& target, const Value& value) {
  if (target.kind == ExpressionKind::name) return set(target.name, value.chosen_by(chosen_by_));
  if (target.kind == ExpressionKind::tuple) return assign_names(target.parts, value);
  const Value of = evaluate(*target.parts[0]);
  Namespace* const* space = of.as<Namespace*>();
  ZERO_CHECK(space != nullptr, "cannot assign attribute on non-namespace object");
  auto& items = (*space)->items;
  budget_.work(items.size());
  const auto found = std::ranges::find(items, target.name, &std::pair<std::string, Value>::first);
  if (found != items.end()) {
    found->second = value.chosen_by(chosen_by_);
    return;
  }
  budget_.make(sizeof(*found));
  items.emplace_back(target.name, value.chosen_by(chosen_by_));
}

void Evaluator::assign_names(const Expressions& targets, const Value& value) {
  const std::vector<Value> values = items_of(value);
  ZERO_CHECK(values.size() <= targets.size(), "too many values to unpack (expected {})",
             targets.size());
  ZERO_CHECK(values.size() == targets.size(), "not enough values to unpack (expected {}, got {})",
             targets.size(), values.size());
  for (std::size_t i = 0; i < targets.size(); ++i) assign(*targets[i], values[i]);
}

std::vector<Value> Evaluator::items_of(const Value& value) {
  budget_.work();
  if (const List* list = value.list()) {
    budget_.make(list->items.size() * sizeof(Value));
    if (list->kind == Sequence::generator && std::exchange(list->used, true)) return {};
    return list->items;
  }
  std::vector<Value> items;
  if (const Map* map = value.map()) {
    budget_.make(map->items.size() * sizeof(Value));
    for (const auto& [key, of_key] : map->items) items.push_back(key);
  } else if (const Text* text = value.text()) {
    budget_.make(text->size() * (sizeof(Value) + sizeof(Text)));
    const auto borders = character_borders(text->bytes());
    for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
      items.emplace_back(text->part(borders[i], borders[i + 1]));
    }
  } else {
    ZERO_CHECK(value.is_undefined(), "'{}' object is not iterable", type_name(value));
  }
  return items;
}

Value cut_by(Origin origin, const Value& text) {
  if (origin == Origin::from_template) return text;
  Text out("", origin);
  out.append(*text.text());
  out.append("", origin);
  return text.is_safe() ? Value::safe(out) : Value(std::move(out));
}

Value made_of(const Value& result, const Value& input, const Arguments& arguments) {
  Origin by = Origin::from_template;
  for (const Value& value : arguments.places) by = joined(by, value.origin());
  for (const auto& [name, value] : arguments.named) by = joined(by, value.origin());
  const bool texts = result.text() != nullptr && input.text() != nullptr;
  return texts ? cut_by(by, result) : result.chosen_by(joined(by, input.origin()));
}

Value Evaluator::call_macro(const Macro& macro, const Arguments& arguments) {
  const Statement& statement = *macro.statement;
  const auto& parameters = statement.parameters;
  ZERO_CHECK(arguments.places.size() <= parameters.size(),
             "macro '{}' takes not more than {} argument(s)", statement.name, parameters.size());
  for (const auto& [name, value] : arguments.named) {
    const auto found =
        std::ranges::find(parameters, name, &std::pair<std::string, const Expression*>::first);
    ZERO_CHECK(found != parameters.end(), "macro '{}' takes no keyword argument '{}'",
               statement.name, name);
  }
  const Inner inner(*this, macro.scope);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, usual] = parameters[i];
    const auto named =
        std::ranges::find(arguments.named, name, &std::pair<std::string, Value>::first);
    if (i < arguments.places.size()) {
      set(name, arguments.places[i]);
    } else if (named != arguments.named.end()) {
      set(name, named->second);
    } else {
      set(name, usual != nullptr
                    ? evaluate(*usual)
                    : Value::undefined(fmt::format("parameter '{}' was not provided", name)));
    }
  }
  return Value(captured(statement.body));
}

Given::Given(std::string_view function, const Arguments& arguments,
             std::span<const std::string_view> names, std::size_t needed)
    : function_(function), values_(names.size(), nullptr) {
  ZERO_CHECK(arguments.places.size() <= names.size(), "{} takes at most {} arguments ({} given)",
             function, names.size(), arguments.places.size());
  for (std::size_t i = 0; i < arguments.places.size(); ++i) values_[i] = &arguments.places[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(names, name);
    ZERO_CHECK(found != names.end(), "{} got an unexpected keyword argument '{}'", function, name);
    auto& place = values_[static_cast<std::size_t>(found - names.begin())];
    ZERO_CHECK(place == nullptr, "{} got multiple values for argument '{}'", function, name);
    place = &value;
  }
  for (std::size_t i = 0; i < needed; ++i) {
    ZERO_CHECK(values_[i] != nullptr, "{} missing its argument {}", function, i + 1);
  }
}

bool Given::truth(std::size_t place) const {
  return values_[place] != nullptr && jinja::truth(*values_[place]);
}

std::int64_t Given::integer(std::size_t place, std::int64_t otherwise) const {
  const Value* value = values_[place];
  if (value == nullptr || value->is_none()) return otherwise;
  ZERO_CHECK(value->is_integer(), "{}: '{}' object cannot be interpreted as an integer", function_,
             type_name(*value));
  return value->integer();
}

Origin Given::origin(std::size_t place) const {
  return values_[place] != nullptr ? values_[place]->origin() : Origin::from_template;
}

Text Given::text(std::size_t place, std::string_view otherwise) const {
  const Value* value = values_[place];
  return value != nullptr ? shown(*value) : Text(otherwise, Origin::from_template);
}

const Text& Given::needed_text(std::size_t place) const {
  check_defined(*values_[place]);
  const Text* text = values_[place]->text();
  ZERO_CHECK(text != nullptr, "{}: expected a str, not '{}'", function_,
             type_name(*values_[place]));
  return *text;
}

std::int64_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const Text* text = value.text()) return std::ssize(character_borders(text->bytes())) - 1;
  if (const Map* map = value.map()) return std::ssize(map->items);
  const List* list = value.list();
  ZERO_CHECK(list != nullptr && list->kind != Sequence::generator,
             "object of type '{}' has no len()", type_name(value));
  return std::ssize(list->items);
}

}  // namespace zero::jinja
