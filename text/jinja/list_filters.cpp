// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>

#include "text/jinja/filters.h"

namespace zero::jinja {
namespace {

/// What the attribute "a.0.b" of `value` is.
Value attribute_at(Evaluator& evaluator, Value value, const Value& path) {
  if (path.text() == nullptr) return evaluator.item(value, path);
  const std::string dot = ".";
  evaluator.budget().make(path.text()->size());
  for (const Text& part : split(*path.text(), &dot, -1)) {
    const std::string& name = part.bytes();
    const bool number = !name.empty() && name.size() < 10 &&
                        name.find_first_not_of("0123456789") == std::string::npos;
    value = evaluator.item(value, number ? Value::integer(std::stoll(name)) : Value(part));
  }
  return value;
}

/// The items under `attribute`, if it was given.
std::vector<Value> items_by(Evaluator& evaluator, const Value& input, const Value* attribute) {
  std::vector<Value> items = evaluator.items_of(input);
  if (attribute == nullptr || attribute->is_none()) return items;
  for (Value& item : items) item = attribute_at(evaluator, item, *attribute);
  return items;
}

Value join(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Given given("join", arguments, {"d", "attribute"});
  std::vector<Text> texts;
  for (const Value& item : items_by(evaluator, input, given.value(1))) {
    evaluator.budget().make(weight_of(item));
    texts.push_back(shown(item));
  }
  return joined_by(evaluator, given.text(0), texts, input.own_origin());
}

Value list(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Given given("list", arguments, {});
  return Value::list(evaluator.items_of(input));
}

Value first(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Given given("first", arguments, {});
  const std::vector<Value> items = evaluator.items_of(input);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value last(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Given given("last", arguments, {});
  check_defined(input);
  const bool generator = input.list() != nullptr && input.list()->kind == Sequence::generator;
  ZERO_CHECK(!generator, "'generator' object is not reversible");
  const std::vector<Value> items = evaluator.items_of(input);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Given given("reverse", arguments, {});
  std::vector<Value> items = evaluator.items_of(input);
  std::ranges::reverse(items);
  if (input.text() == nullptr) return Value::list(std::move(items), Sequence::generator);
  Text out = input.text()->part(0, 0);
  for (const Value& item : items) out.append(*item.text());
  return Value(std::move(out));
}

std::vector<Value> pairs(const Map& map) {
  std::vector<Value> items;
  for (const auto& [key, value] : map.items) {
    items.push_back(Value::list({key, value}, Sequence::tuple));
  }
  return items;
}

Value items(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Given given("items", arguments, {});
  if (input.is_undefined()) return Value::list({}, Sequence::generator);
  ZERO_CHECK(input.map() != nullptr, "Can only get item pairs from a mapping.");
  evaluator.budget().make(input.map()->items.size() * 2 * sizeof(Value));
  return Value::list(pairs(*input.map()), Sequence::generator);
}

/// What sorting holds against each other: texts in lower case unless their case counts.
Value sort_key(const Value& value, bool case_counts) {
  return value.text() != nullptr && !case_counts ? Value(in_case(*value.text(), Case::lower))
                                                 : value;
}

std::vector<Value> sorted(Evaluator& evaluator, const std::vector<Value>& items,
                          const std::vector<Value>& keys, bool down) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    evaluator.budget().work(std::min(cost_of_equality(keys[a]), cost_of_equality(keys[b])));
    const int compared = compare(keys[a], keys[b], "<");
    return down ? compared > 0 : compared < 0;
  });
  std::vector<Value> out;
  for (const std::size_t i : order) out.push_back(items[i]);
  return out;
}

Value dictsort(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Given given("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  check_defined(input);
  ZERO_CHECK(input.map() != nullptr, "'{}' object has no attribute 'items'", type_name(input));
  const bool by_value = given.text(1, "key").bytes() == "value";
  const std::vector<Value> items = pairs(*input.map());
  std::vector<Value> keys;
  for (const Value& item : items) {
    keys.push_back(sort_key(item.list()->items[by_value ? 1 : 0], given.truth(0)));
  }
  return Value::list(sorted(evaluator, items, keys, given.truth(2)));
}

Value sort(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Given given("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const std::vector<Value> items = evaluator.items_of(input);
  std::vector<Value> keys;
  for (const Value& item : items) {
    const bool by = given.value(2) != nullptr && !given.value(2)->is_none();
    keys.push_back(
        sort_key(by ? attribute_at(evaluator, item, *given.value(2)) : item, given.truth(1)));
  }
  return Value::list(sorted(evaluator, items, keys, given.truth(0)));
}

Value map(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  if (!truth(input)) return Value::list({}, Sequence::generator);
  std::vector<Value> items = evaluator.items_of(input);
  if (arguments.places.empty()) {
    const Given given("map", arguments, {"attribute", "default"}, 1);
    for (Value& item : items) {
      item = attribute_at(evaluator, item, *given.value(0));
      if (item.is_undefined() && given.value(1) != nullptr) item = *given.value(1);
    }
    return Value::list(std::move(items), Sequence::generator);
  }
  Arguments rest = arguments;
  rest.places.erase(rest.places.begin());
  const std::string name = shown(arguments.places[0]).bytes();
  for (Value& item : items) {
    evaluator.budget().make(weight_of(item));
    item = apply_filter(evaluator, name, item, rest);
  }
  return Value::list(std::move(items), Sequence::generator);
}

/// Keeps the items of which a test holds, or not; of their attribute, the first argument, if `by`.
Value chosen(Evaluator& evaluator, const Value& input, Arguments arguments, bool by, bool kept) {
  if (!truth(input)) return Value::list({}, Sequence::generator);
  std::optional<Value> attribute;
  const auto take = [&] {
    Value value = arguments.places.front();
    arguments.places.erase(arguments.places.begin());
    return value;
  };
  if (by) {
    ZERO_CHECK(!arguments.places.empty(), "Missing parameter for attribute name");
    attribute = take();
  }
  std::optional<std::string> test;
  if (!arguments.places.empty()) test = shown(take()).bytes();
  std::vector<Value> out;
  Origin origin = Origin::from_template;
  for (Value& item : evaluator.items_of(input)) {
    const Value value = attribute ? attribute_at(evaluator, item, *attribute) : item;
    const bool type_alone = test && arguments.places.empty() && !value.is_number();
    if (!type_alone) origin = joined(origin, value.origin());
    evaluator.budget().work(weight_of(value));
    const bool holds = test ? apply_test(evaluator, *test, value, arguments) : truth(value);
    if (holds == kept) out.push_back(std::move(item));
  }
  return Value::list(std::move(out), Sequence::generator).with_origin(origin);
}

Value select(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  return chosen(evaluator, input, arguments, false, true);
}
Value reject(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  return chosen(evaluator, input, arguments, false, false);
}
Value selectattr(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  return chosen(evaluator, input, arguments, true, true);
}
Value rejectattr(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  return chosen(evaluator, input, arguments, true, false);
}

constexpr std::array<std::pair<std::string_view, Filter>, 13> kFilters{
    {{"join", join},
     {"list", list},
     {"first", first},
     {"last", last},
     {"reverse", reverse},
     {"items", items},
     {"dictsort", dictsort},
     {"sort", sort},
     {"map", map},
     {"select", select},
     {"reject", reject},
     {"selectattr", selectattr},
     {"rejectattr", rejectattr}}};

}  // namespace

std::vector<std::string_view> list_filter_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, filter] : kFilters) names.push_back(name);
  return names;
}

Filter list_filter(std::string_view name) {
  const auto found = std::ranges::find(kFilters, name, &std::pair<std::string_view, Filter>::first);
  return found != kFilters.end() ? found->second : nullptr;
}

Value joined_by(Evaluator& evaluator, const Text& between, const std::vector<Text>& texts,
                Origin chosen) {
  Text out("", between.origin());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    evaluator.budget().make(texts[i].size() + between.size());
    if (i > 0) out.append(between);
    out.append("", chosen);  // one before it may be left out
    out.append(texts[i]);
  }
  return Value(std::move(out));
}

}  // namespace zero::jinja
