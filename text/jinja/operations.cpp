// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
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

}  // namespace zero::jinja
