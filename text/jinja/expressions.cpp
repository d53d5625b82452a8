// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "text/jinja/evaluator.h"
#include "text/jinja/lexer.h"

namespace zero::jinja {
namespace {

/// As Undefined names what has no such attribute.
std::string owner(const Value& value) {
  if (value.is_none()) return "None";
  if (value.as<Namespace*>() != nullptr) return "jinja2.utils.Namespace object";
  if (value.as<Loop*>() != nullptr) return "jinja2.runtime.LoopContext object";
  return type_name(value) + " object";
}

Value missing(const Value& of, const Value& key) {
  if (key.text() != nullptr) {
    return Value::undefined(
        fmt::format("'{}' has no attribute '{}'", owner(of), key.text()->bytes()));
  }
  const bool number = key.is_integer();
  return Value::undefined(fmt::format("{} has no element {}", owner(of),
                                      number ? fmt::format("{}", key.integer()) : type_name(key)));
}

Value loop_attribute(const Loop& loop, std::string_view name) {
  const auto index = static_cast<std::int64_t>(loop.index);
  const std::int64_t length = std::ssize(loop.items);
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(length - index);
  if (name == "revindex0") return Value::integer(length - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == length);
  if (name == "length") return Value::integer(length);
  if (name == "depth") return Value::integer(loop.depth);
  if (name == "depth0") return Value::integer(loop.depth - 1);
  if (name == "previtem") {
    return index > 0 ? loop.items[loop.index - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? loop.items[loop.index + 1]
                              : Value::undefined("there is no next item");
  }
  return {};
}

/// Python's slice.indices().
struct SliceRange {
  std::int64_t begin, end, step;
};

SliceRange slice_range(const std::array<Value, 3>& parts, std::int64_t length) {
  const auto part = [&](std::size_t i, std::int64_t otherwise) {
    if (parts[i].is_none()) return otherwise;
    ZERO_CHECK(parts[i].is_integer(),
               "slice indices must be integers or None or have an __index__ method");
    return parts[i].integer();
  };
  const std::int64_t step = part(2, 1);
  ZERO_CHECK(step != 0, "slice step cannot be zero");
  const std::int64_t low = step > 0 ? 0 : -1;
  const std::int64_t high = step > 0 ? length : length - 1;
  const auto bound = [&](std::size_t i, std::int64_t otherwise) {
    if (parts[i].is_none()) return otherwise;
    const std::int64_t at = part(i, 0);
    return std::clamp(at < 0 ? std::max(at, -length - 1) + length : at, low, high);
  };
  return {bound(0, step > 0 ? low : high), bound(1, step > 0 ? high : low),
          std::clamp(step, -length - 1, length + 1)};
}

}  // namespace

Value Evaluator::evaluate(const Expression& expression) {
  const Budget::Level level(budget_);
  budget_.work();
  line_ = expression.line;
  switch (expression.kind) {
    case ExpressionKind::literal:
      return expression.value;
    case ExpressionKind::name:
      return name(expression.name);
    case ExpressionKind::list:
    case ExpressionKind::tuple:
      return evaluate_list(expression);
    case ExpressionKind::map:
      return evaluate_map(expression);
    case ExpressionKind::slice:
      return evaluate_slice(expression);
    case ExpressionKind::comparison:
      return evaluate_comparison(expression);
    case ExpressionKind::joined:
      return evaluate_joined(expression);
    case ExpressionKind::call:
      return evaluate_call(expression);
    case ExpressionKind::filter:
      return evaluate_filter(expression);
    case ExpressionKind::test:
      return evaluate_test(expression);
    case ExpressionKind::negation:
    case ExpressionKind::both:
    case ExpressionKind::either:
    case ExpressionKind::choice:
      return evaluate_logic(expression);
    default:
      return evaluate_value(expression);
  }
}

Value Evaluator::evaluate_value(const Expression& expression) {
  Value first = evaluate(*expression.parts[0]);
  if (expression.kind == ExpressionKind::attribute) return attribute(first, expression.name);
  if (expression.kind == ExpressionKind::sign) {
    check_defined(first);
    ZERO_CHECK(first.is_number(), "bad operand type for unary {}: '{}'", expression.name,
               type_name(first));
    const Value zero = Value::integer(0);
    return operate(*this, expression.name, zero, first);
  }
  const Value second = evaluate(*expression.parts[1]);
  line_ = expression.line;
  if (expression.kind == ExpressionKind::item) return item(first, second);
  return operate(*this, expression.name, first, second);
}

Value Evaluator::evaluate_logic(const Expression& expression) {
  const Value first = evaluate(*expression.parts[0]);
  const bool holds = truth(first);
  const auto part = [&](std::size_t i) {
    return evaluate(*expression.parts[i]).chosen_by(first.origin());
  };
  switch (expression.kind) {
    case ExpressionKind::negation:
      return Value::boolean(!holds).with_origin(first.origin());
    case ExpressionKind::both:
      return holds ? part(1) : first;
    case ExpressionKind::either:
      return holds ? first : part(1);
    default:
      break;
  }
  if (holds || expression.parts[2] != nullptr) return part(holds ? 1 : 2);
  return Value::undefined(
             fmt::format("the inline if-expression on line {} evaluated to false and no else "
                         "section was defined.",
                         expression.line))
      .with_origin(first.origin());
}

Value Evaluator::evaluate_list(const Expression& expression) {
  std::vector<Value> items;
  for (const Expression* part : expression.parts) items.push_back(evaluate(*part));
  budget_.make(items.size() * sizeof(Value));
  return Value::list(std::move(items),
                     expression.kind == ExpressionKind::tuple ? Sequence::tuple : Sequence::list);
}

Value Evaluator::evaluate_map(const Expression& expression) {
  std::vector<std::pair<Value, Value>> items;
  for (std::size_t i = 0; i < expression.parts.size(); i += 2) {
    Value key = evaluate(*expression.parts[i]);
    Value value = evaluate(*expression.parts[i + 1]);
    budget_.work(items.size() * 64);
    const auto found =
        std::ranges::find_if(items, [&](const auto& item) { return equal(item.first, key); });
    if (found != items.end()) {
      found->second = std::move(value);
    } else {
      items.emplace_back(std::move(key), std::move(value));
    }
  }
  budget_.make(items.size() * 2 * sizeof(Value));
  return Value::map(std::move(items));
}

Value Evaluator::evaluate_slice(const Expression& expression) {
  const Value of = evaluate(*expression.parts[0]);
  check_defined(of);
  std::array<Value, 3> parts{Value::none(), Value::none(), Value::none()};
  for (std::size_t i = 0; i < 3; ++i) {
    if (expression.parts[i + 1] != nullptr) parts[i] = evaluate(*expression.parts[i + 1]);
  }
  line_ = expression.line;
  const Text* text = of.text();
  const List* list = of.list();
  const bool sliced =
      list != nullptr && list->kind != Sequence::generator && list->kind != Sequence::view;
  if (text == nullptr && !sliced) return missing(of, parts[0]);
  ZERO_CHECK(!of.is_safe(), "a slice of what the filter 'safe' gives is not known here");
  budget_.make(weight_of(of));
  const auto borders = text != nullptr ? character_borders(text->bytes())
                                       : std::vector<std::size_t>(list->items.size() + 1);
  const SliceRange range = slice_range(parts, std::ssize(borders) - 1);
  Text part;
  std::vector<Value> items;
  for (std::int64_t at = range.begin; range.step > 0 ? at < range.end : at > range.end;
       at += range.step) {
    const auto i = static_cast<std::size_t>(at);
    if (text != nullptr) {
      part.append(text->part(borders[i], borders[i + 1]));
      part.append("", parts[2].origin());
    } else {
      items.push_back(list->items[i]);
    }
  }
  Origin by = Origin::from_template;
  for (const Value& each : parts) by = joined(by, each.origin());
  if (text == nullptr) {
    return Value::list(std::move(items), list->kind).chosen_by(joined(by, of.origin()));
  }
  if (part.empty()) by = joined(by, of.origin());
  return cut_by(by, Value(std::move(part)));
}

Value Evaluator::evaluate_comparison(const Expression& expression) {
  Value left = evaluate(*expression.parts[0]);
  Origin by = left.origin();
  for (std::size_t i = 0; i < expression.signs.size(); ++i) {
    const std::string& sign = expression.signs[i];
    Value right = evaluate(*expression.parts[i + 1]);
    line_ = expression.line;
    by = joined(by, right.origin());
    budget_.work(std::min(cost_of_equality(left), cost_of_equality(right)));
    bool holds = false;
    if (sign == "in" || sign == "not in") {
      holds = contains(*this, right, left) == (sign == "in");
    } else if (sign == "==" || sign == "!=") {
      holds = equal(left, right) == (sign == "==");
    } else {
      const int order = compare(left, right, sign);
      holds = sign == "<"    ? order < 0
              : sign == "<=" ? order <= 0
              : sign == ">"  ? order > 0
                             : order >= 0;
    }
    if (!holds) return Value::boolean(false).with_origin(by);
    left = std::move(right);
  }
  return Value::boolean(true).with_origin(by);
}

Value Evaluator::evaluate_joined(const Expression& expression) {
  Text out;
  for (const Expression* part : expression.parts) {
    const Value value = evaluate(*part);
    budget_.make(weight_of(value));
    out.append(shown(value));
  }
  return Value(std::move(out));
}

Arguments Evaluator::arguments(const Expression& expression) {
  Arguments all;
  for (std::size_t i = 1; i < expression.parts.size(); ++i) {
    const Expression& part = *expression.parts[i];
    if (part.kind != ExpressionKind::spread) {
      all.places.push_back(evaluate(part));
      continue;
    }
    const std::vector<Value> several = items_of(evaluate(*part.parts[0]));
    all.places.insert(all.places.end(), several.begin(), several.end());
  }
  for (const auto& [name, part] : expression.named) all.named.emplace_back(name, evaluate(*part));
  // Whatever is called may read all that it is given.
  for (const Value& value : all.places) budget_.work(weight_of(value));
  for (const auto& [name, value] : all.named) budget_.work(weight_of(value));
  return all;
}

Value Evaluator::evaluate_call(const Expression& expression) {
  const Value function = evaluate(*expression.parts[0]);
  const Arguments given = arguments(expression);
  line_ = expression.line;
  return call(function, given);
}

Value Evaluator::evaluate_filter(const Expression& expression) {
  const Value input = expression.parts[0] != nullptr ? evaluate(*expression.parts[0])
                                                     : std::exchange(filtered_, {});
  const Arguments given = arguments(expression);
  line_ = expression.line;
  budget_.make(weight_of(input));
  return apply_filter(*this, expression.name, input, given);
}

Value Evaluator::evaluate_test(const Expression& expression) {
  const Value input = evaluate(*expression.parts[0]);
  const Arguments given = arguments(expression);
  line_ = expression.line;
  budget_.work(weight_of(input));
  const Value holds = Value::boolean(apply_test(*this, expression.name, input, given));
  const bool type_alone = given.places.empty() && given.named.empty() && !input.is_number();
  return type_alone ? holds : made_of(holds, input, given);
}

Value Evaluator::call(const Value& function, const Arguments& arguments) {
  check_defined(function);
  if (const auto* global = function.as<Function>()) {
    return call_function(*this, global->name, arguments);
  }
  if (const auto* macro = function.as<const Macro*>()) return call_macro(**macro, arguments);
  const auto* method = function.as<std::shared_ptr<const Method>>();
  ZERO_CHECK(method != nullptr, "'{}' object is not callable", type_name(function));
  budget_.make(weight_of((*method)->self));
  return call_method(*this, **method, arguments);
}

Value Evaluator::name(const std::string& name) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->around.get()) {
    budget_.work(scope->names.size());
    const auto found = std::ranges::find(scope->names, name, &std::pair<std::string, Value>::first);
    if (found != scope->names.end()) return found->second;
  }
  constexpr std::array<std::string_view, 4> kOfMacros{"caller", "varargs", "kwargs", "self"};
  ZERO_CHECK(std::ranges::find(kOfMacros, name) == kOfMacros.end(), "'{}' is not known here", name);
  Value function = global_function(name);
  return function.is_undefined() ? Value::undefined(fmt::format("'{}' is undefined", name))
                                 : function;
}

Value Evaluator::attribute(const Value& of, const std::string& name) {
  check_defined(of);
  const Value key = Value::text(name);
  if (name.starts_with("__")) {
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(of)));
  }
  if (has_method(of, name)) {
    return {Value::Variant(std::make_shared<const Method>(Method{of, name}))};
  }
  if (const Map* map = of.map()) {
    budget_.work(map->items.size() * 16);
    const Value* found = map->find(key);
    return found != nullptr ? *found : missing(of, key);
  }
  if (Namespace* const* space = of.as<Namespace*>()) {
    const auto& items = (*space)->items;
    budget_.work(items.size());
    const auto found = std::ranges::find(items, name, &std::pair<std::string, Value>::first);
    return found != items.end() ? found->second : missing(of, key);
  }
  if (Loop* const* loop = of.as<Loop*>()) {
    Value value = loop_attribute(**loop, name);
    const bool known = !value.is_undefined() || value.as<Undefined>()->why != nullptr;
    return known ? value.chosen_by((*loop)->origin) : missing(of, key);
  }
  return missing(of, key);
}

Value Evaluator::item(const Value& of, const Value& key) {
  const Value found = item_at(of, key);
  const bool character = found.text() != nullptr && of.text() != nullptr;
  return character ? cut_by(key.origin(), found)
                   : found.chosen_by(joined(key.origin(), of.origin()));
}

Value Evaluator::item_at(const Value& of, const Value& key) {
  check_defined(of);
  if (const Map* map = of.map()) {
    budget_.work(map->items.size() * 16);
    if (const Value* found = map->find(key)) return *found;
  }
  if (const Text* name = key.text()) return attribute(of, name->bytes());
  if (!key.is_integer()) return missing(of, key);
  const List* list = of.list();
  const Text* text = of.text();
  if (list != nullptr && list->kind != Sequence::generator && list->kind != Sequence::view) {
    const std::int64_t at = key.integer() + (key.integer() < 0 ? std::ssize(list->items) : 0);
    if (at >= 0 && at < std::ssize(list->items)) return list->items[static_cast<std::size_t>(at)];
  } else if (text != nullptr) {
    budget_.work(text->size() * 8);
    const auto borders = character_borders(text->bytes());
    const std::int64_t length = std::ssize(borders) - 1;
    const std::int64_t at = key.integer() + (key.integer() < 0 ? length : 0);
    if (at >= 0 && at < length) {
      const auto i = static_cast<std::size_t>(at);
      return Value(text->part(borders[i], borders[i + 1]));
    }
  }
  return missing(of, key);
}

}  // namespace zero::jinja
