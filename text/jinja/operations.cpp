// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja/evaluator.h"

namespace zero::jinja {
namespace {

Value real(double value) { return {Value::Variant(value)}; }

Value checked(bool overflows, std::int64_t value) {
  ZERO_CHECK(!overflows, "a whole number is larger than 64 bits");
  return Value::integer(value);
}

Value add(Evaluator& evaluator, const Value& a, const Value& b) {
  if (const Text* text = a.text()) {
    ZERO_CHECK(b.text() != nullptr, "can only concatenate str (not \"{}\") to str", type_name(b));
    evaluator.budget().make(text->size() + b.text()->size());
    Text out = *text;
    out.append(*b.text());
    return Value(std::move(out));
  }
  const List* list = a.list();
  ZERO_CHECK(list != nullptr && list->kind <= Sequence::tuple,
             "unsupported operand type(s) for +: '{}' and '{}'", type_name(a), type_name(b));
  ZERO_CHECK(b.list() != nullptr && b.list()->kind == list->kind,
             "can only concatenate {} (not \"{}\") to {}", type_name(a), type_name(b),
             type_name(a));
  evaluator.budget().make((list->items.size() + b.list()->items.size()) * sizeof(Value));
  std::vector<Value> items = list->items;
  items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
  return Value::list(std::move(items), list->kind)
      .with_origin(joined(a.own_origin(), b.own_origin()));
}

Value repeat(Evaluator& evaluator, const Value& what, const Value& times) {
  const std::int64_t count = std::clamp<std::int64_t>(times.integer(), 0, std::int64_t{1} << 26);
  evaluator.budget().make(static_cast<std::size_t>(count) * weight_of(what));
  if (const Text* text = what.text()) {
    Text out("", text->origin());
    for (std::int64_t i = 0; i < count; ++i) out.append(*text);
    return cut_by(times.origin(), Value(std::move(out)));
  }
  std::vector<Value> items;
  for (std::int64_t i = 0; i < count; ++i) {
    items.insert(items.end(), what.list()->items.begin(), what.list()->items.end());
  }
  return Value::list(std::move(items), what.list()->kind)
      .with_origin(joined(what.own_origin(), times.origin()));
}

bool repeats(const Value& value) {
  return value.text() != nullptr ||
         (value.list() != nullptr && value.list()->kind <= Sequence::tuple);
}

/// Python's: rounds down, and the remainder has the divisor's sign.
Value divide_whole(const std::string& sign, std::int64_t a, std::int64_t b) {
  ZERO_CHECK(b != 0, "integer {}modulo by zero", sign == "//" ? "division or " : "");
  if (b == -1) {
    std::int64_t negative = 0;
    const bool overflows = __builtin_sub_overflow(std::int64_t{0}, a, &negative);
    return sign == "//" ? checked(overflows, negative) : Value::integer(0);
  }
  const std::int64_t rest = a % b;
  const bool down = rest != 0 && (rest < 0) != (b < 0);
  return Value::integer(sign == "//" ? a / b - (down ? 1 : 0) : rest + (down ? b : 0));
}

Value of_integers(const std::string& sign, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  bool overflows = false;
  if (sign == "+") overflows = __builtin_add_overflow(a, b, &out);
  if (sign == "-") overflows = __builtin_sub_overflow(a, b, &out);
  if (sign == "*") overflows = __builtin_mul_overflow(a, b, &out);
  if (sign == "+" || sign == "-" || sign == "*") return checked(overflows, out);
  if (sign == "/") {
    ZERO_CHECK(b != 0, "division by zero");
    return real(static_cast<double>(a) / static_cast<double>(b));
  }
  return divide_whole(sign, a, b);
}

Value of_reals(const std::string& sign, double a, double b) {
  if (sign == "+") return real(a + b);
  if (sign == "-") return real(a - b);
  if (sign == "*") return real(a * b);
  ZERO_CHECK(b != 0, "float division by zero");
  if (sign == "/") return real(a / b);
  const double rest = std::fmod(a, b);
  const double remainder = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  return real(sign == "//" ? std::floor((a - remainder) / b + 0.5) : remainder);
}

/// Python's `is`, where it does not hang upon how Python keeps values.
bool same(const Value& a, const Value& b) {
  if (type_name(a) != type_name(b)) return false;
  ZERO_CHECK(a.is_none() || a.as<bool>() != nullptr,
             "the test 'sameas' of values of the type '{}' is not known here; write '=='",
             type_name(a));
  return equal(a, b);
}

bool is_sequence(const Value& value) {
  const List* list = value.list();
  const bool indexed =
      list != nullptr && list->kind != Sequence::generator && list->kind != Sequence::view;
  return value.is_undefined() || value.text() != nullptr || value.map() != nullptr || indexed;
}

bool is_iterable(const Value& value) {
  return is_sequence(value) || value.list() != nullptr || value.as<Loop*>() != nullptr;
}

bool is_callable(const Value& value) {
  return value.as<Function>() != nullptr || value.as<const Macro*>() != nullptr ||
         value.as<std::shared_ptr<const Method>>() != nullptr || value.is_undefined();
}

bool is_true(const Value& value) { return value.as<bool>() != nullptr && *value.as<bool>(); }
bool is_false(const Value& value) { return value.as<bool>() != nullptr && !*value.as<bool>(); }

using Test = bool (*)(const Value& value);
constexpr std::array<std::pair<std::string_view, Test>, 14> kTests{
    {{"defined", [](const Value& value) { return !value.is_undefined(); }},
     {"undefined", [](const Value& value) { return value.is_undefined(); }},
     {"none", [](const Value& value) { return value.is_none(); }},
     {"string", [](const Value& value) { return value.text() != nullptr; }},
     {"mapping", [](const Value& value) { return value.map() != nullptr; }},
     {"iterable", is_iterable},
     {"sequence", is_sequence},
     {"number", [](const Value& value) { return value.is_number(); }},
     {"integer", [](const Value& value) { return value.as<std::int64_t>() != nullptr; }},
     {"float", [](const Value& value) { return value.as<double>() != nullptr; }},
     {"boolean", [](const Value& value) { return value.as<bool>() != nullptr; }},
     {"true", is_true},
     {"false", is_false},
     {"callable", is_callable}}};

/// The sign of a comparison under one of its names; empty if it has none.
std::string_view sign_of(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kSigns{
      {{"eq", "=="},
       {"equalto", "=="},
       {"ne", "!="},
       {"lt", "<"},
       {"lessthan", "<"},
       {"le", "<="},
       {"gt", ">"},
       {"greaterthan", ">"},
       {"ge", ">="},
       {"==", "=="},
       {"!=", "!="},
       {"<", "<"},
       {">", ">"}}};
  const auto found =
      std::ranges::find(kSigns, name, &std::pair<std::string_view, std::string_view>::first);
  return found != kSigns.end() ? found->second : "";
}

bool compared(std::string_view sign, const Value& a, const Value& b) {
  if (sign == "==") return equal(a, b);
  if (sign == "!=") return !equal(a, b);
  const int order = compare(a, b, sign);
  if (sign == "<") return order < 0;
  if (sign == "<=") return order <= 0;
  return sign == ">" ? order > 0 : order >= 0;
}

bool divides(Evaluator& evaluator, const Value& value, std::int64_t by, std::int64_t rest) {
  return equal(operate(evaluator, "%", value, Value::integer(by)), Value::integer(rest));
}

constexpr std::array<std::string_view, 5> kOthers{"escaped", "filter", "test", "lower", "upper"};

}  // namespace

Value operate(Evaluator& evaluator, const std::string& sign, const Value& a, const Value& b) {
  check_defined(a);
  check_defined(b);
  ZERO_CHECK(!a.is_safe() && !b.is_safe(),
             "'{}' on what the filter 'safe' gives is not known here; leave the filter out", sign);
  const bool power = sign == "**";
  const bool format = sign == "%" && a.text() != nullptr;
  ZERO_CHECK(!power && !format, "'{}' is not known here for '{}' and '{}'", sign, type_name(a),
             type_name(b));
  if (a.is_number() && b.is_number()) {
    const bool whole = a.is_integer() && b.is_integer();
    const Value result = whole ? of_integers(sign, a.integer(), b.integer())
                               : of_reals(sign, a.number(), b.number());
    return result.with_origin(joined(a.origin(), b.origin()));
  }
  if (sign == "+") return add(evaluator, a, b);
  if (sign == "*" && repeats(a) && b.is_integer()) return repeat(evaluator, a, b);
  if (sign == "*" && repeats(b) && a.is_integer()) return repeat(evaluator, b, a);
  fail("unsupported operand type(s) for {}: '{}' and '{}'", sign, type_name(a), type_name(b));
}

bool contains(Evaluator& evaluator, const Value& in, const Value& what) {
  if (const Text* text = in.text()) {
    ZERO_CHECK(what.text() != nullptr, "'in <string>' requires string as left operand, not {}",
               type_name(what));
    evaluator.budget().search(text->size(), what.text()->size());
    return text->bytes().find(what.text()->bytes()) != std::string::npos;
  }
  if (const Map* map = in.map()) {
    evaluator.budget().work(map->items.size() * 16);
    return map->find(what) != nullptr;
  }
  ZERO_CHECK(in.is_undefined() || in.list() != nullptr, "argument of type '{}' is not iterable",
             type_name(in));
  const std::vector<Value> items = evaluator.items_of(in);
  return std::ranges::any_of(items, [&](const Value& item) {
    evaluator.budget().work(std::min(cost_of_equality(item), cost_of_equality(what)));
    return equal(item, what);
  });
}

bool apply_test(Evaluator& evaluator, const std::string& name, const Value& input,
                const Arguments& arguments) {
  const auto found = std::ranges::find(kTests, name, &std::pair<std::string_view, Test>::first);
  if (found != kTests.end()) {
    const Given given(name, arguments, {});
    return found->second(input);
  }
  if (name == "odd" || name == "even") {
    const Given given(name, arguments, {});
    return divides(evaluator, input, 2, name == "odd" ? 1 : 0);
  }
  const std::string_view sign = sign_of(name);
  const bool known = !sign.empty() || name == "sameas" || name == "in" || name == "divisibleby";
  const bool other = std::ranges::find(kOthers, name) != kOthers.end();
  ZERO_CHECK(known || !other, "the test '{}' is not known here", name);
  ZERO_CHECK(known, "No test named '{}'.", name);
  const Given given(name, arguments, {"other"}, 1);
  const Value& second = *given.value(0);
  evaluator.budget().work(std::min(cost_of_equality(input), cost_of_equality(second)));
  if (name == "sameas") return same(input, second);
  if (name == "in") return contains(evaluator, second, input);
  if (name == "divisibleby") return divides(evaluator, input, given.integer(0, 1), 0);
  return compared(sign, input, second);
}

}  // namespace zero::jinja
