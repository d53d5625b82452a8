// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "text/jinja/evaluator.h"

namespace zero::jinja {
namespace {

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
