// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <span>

#include "text/jinja/filters.h"

namespace zero::jinja {
namespace {

using Names = std::span<const std::string_view>;
using TextMethod = Value (*)(Evaluator& evaluator, const Text& text, const Given& given);

template <Sides kSides>
Value strip(Evaluator& evaluator, const Text& text, const Given& given) {
  const bool all = given.value(0) == nullptr || given.value(0)->is_none();
  const std::string* set = all ? nullptr : &given.needed_text(0).bytes();
  evaluator.budget().search(text.size(), set == nullptr ? 0 : set->size());
  return Value(stripped(text, kSides, set));
}

template <Case kCase>
Value cased(Evaluator& /*evaluator*/, const Text& text, const Given& /*given*/) {
  return Value(in_case(text, kCase));
}

Value list_of(Evaluator& evaluator, std::vector<Text> texts) {
  evaluator.budget().make(texts.size() * (sizeof(Value) + sizeof(Text)));
  std::vector<Value> items;
  for (Text& text : texts) items.emplace_back(std::move(text));
  return Value::list(std::move(items));
}

const std::string* separator_in(const Given& given) {
  const bool blank = given.value(0) == nullptr || given.value(0)->is_none();
  if (blank) return nullptr;
  const std::string& separator = given.needed_text(0).bytes();
  ZERO_CHECK(!separator.empty(), "empty separator");
  return &separator;
}

Value split_at(Evaluator& evaluator, const Text& text, const Given& given) {
  const std::string* separator = separator_in(given);
  evaluator.budget().search(text.size(), separator != nullptr ? separator->size() : 0);
  evaluator.budget().make(text.size() * 8);  // each character may be a part
  return list_of(evaluator, split(text, separator, given.integer(1, -1)));
}

Value split_at_last(Evaluator& evaluator, const Text& text, const Given& given) {
  const std::string* separator = separator_in(given);
  ZERO_CHECK(separator != nullptr, "rsplit at white space is not known here; write split");
  evaluator.budget().search(text.size(), separator->size());
  evaluator.budget().make(text.size() * 8);
  return list_of(evaluator, split_from_right(text, *separator, given.integer(1, -1)));
}

Value lines(Evaluator& evaluator, const Text& text, const Given& given) {
  ZERO_CHECK(!given.truth(0), "splitlines with keepends is not known here");
  evaluator.budget().make(text.size() * 8);
  return list_of(evaluator, split_lines(text));
}

enum class Side : std::uint8_t { begin, end };
template <Side kSide>
bool at_side(const Text& text, const Text& part) {
  return kSide == Side::begin ? text.bytes().starts_with(part.bytes())
                              : text.bytes().ends_with(part.bytes());
}

template <Side kSide>
Value has_at(Evaluator& /*evaluator*/, const Text& text, const Given& given) {
  check_defined(*given.value(0));
  const List* several = given.value(0)->list();
  if (several == nullptr) return Value::boolean(at_side<kSide>(text, given.needed_text(0)));
  ZERO_CHECK(several->kind == Sequence::tuple,
             "startswith and endswith take a text or a tuple of texts, not '{}'",
             type_name(*given.value(0)));
  return Value::boolean(std::ranges::any_of(several->items, [&](const Value& part) {
    ZERO_CHECK(part.text() != nullptr, "tuple for startswith must only contain str, not {}",
               type_name(part));
    return at_side<kSide>(text, *part.text());
  }));
}

template <Side kSide>
Value without(Evaluator& /*evaluator*/, const Text& text, const Given& given) {
  const Text& part = given.needed_text(0);
  if (!at_side<kSide>(text, part)) return Value(text);
  return Value(kSide == Side::begin ? text.part(part.size(), text.size())
                                    : text.part(0, text.size() - part.size()));
}

Value replace(Evaluator& evaluator, const Text& text, const Given& given) {
  return replaced_in(evaluator, text,
                     {.from = given.needed_text(0),
                      .to = given.needed_text(1),
                      .most = given.integer(2, -1),
                      .counted = given.origin(2)});
}

Value join(Evaluator& evaluator, const Text& text, const Given& given) {
  std::vector<Text> texts;
  for (const Value& item : evaluator.items_of(*given.value(0))) {
    check_defined(item);
    ZERO_CHECK(item.text() != nullptr, "sequence item {}: expected str instance, {} found",
               texts.size(), type_name(item));
    texts.push_back(*item.text());
  }
  return joined_by(evaluator, text, texts, given.value(0)->own_origin());
}

/// Characters before the found text, or -1.
template <Side kFrom>
Value find(Evaluator& evaluator, const Text& text, const Given& given) {
  const std::string& part = given.needed_text(0).bytes();
  evaluator.budget().search(text.size(), part.size());
  const std::size_t at = kFrom == Side::begin ? text.bytes().find(part) : text.bytes().rfind(part);
  if (at == std::string::npos) return Value::integer(-1);
  return Value::integer(length_of(Value(text.part(0, at))));
}

Value count(Evaluator& evaluator, const Text& text, const Given& given) {
  const std::string& part = given.needed_text(0).bytes();
  if (part.empty()) return Value::integer(length_of(Value(text)) + 1);
  evaluator.budget().search(text.size(), part.size());
  std::int64_t times = 0;
  for (std::size_t at = 0; (at = text.bytes().find(part, at)) != std::string::npos;) {
    ++times;
    at += part.size();
  }
  return Value::integer(times);
}

/// Of ASCII alone: other characters have digits and letters of their own.
template <typename Is>
Value all_are(const Text& text, Is is) {
  const bool ascii = std::ranges::all_of(text.bytes(), [](char c) { return (c & 0x80) == 0; });
  ZERO_CHECK(ascii, "isdigit and isalpha of other characters than ASCII are not known here");
  return Value::boolean(!text.empty() && std::ranges::all_of(text.bytes(), is));
}
Value is_digit(Evaluator& /*evaluator*/, const Text& text, const Given& /*given*/) {
  return all_are(text, [](char c) { return c >= '0' && c <= '9'; });
}
Value is_alpha(Evaluator& /*evaluator*/, const Text& text, const Given& /*given*/) {
  return all_are(text, [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
}

struct TextMethodRow {
  std::string_view name;
  std::size_t needed;
  std::array<std::string_view, 3> parameters;
  TextMethod run;
};
constexpr std::array<TextMethodRow, 22> kTextMethods{
    {{"strip", 0, {"0"}, strip<Sides::both>},
     {"lstrip", 0, {"0"}, strip<Sides::left>},
     {"rstrip", 0, {"0"}, strip<Sides::right>},
     {"upper", 0, {}, cased<Case::upper>},
     {"lower", 0, {}, cased<Case::lower>},
     {"title", 0, {}, cased<Case::title>},
     {"capitalize", 0, {}, cased<Case::capital>},
     {"split", 0, {"sep", "maxsplit"}, split_at},
     {"rsplit", 0, {"sep", "maxsplit"}, split_at_last},
     {"splitlines", 0, {"keepends"}, lines},
     {"startswith", 1, {"0"}, has_at<Side::begin>},
     {"endswith", 1, {"0"}, has_at<Side::end>},
     {"removeprefix", 1, {"0"}, without<Side::begin>},
     {"removesuffix", 1, {"0"}, without<Side::end>},
     {"replace", 2, {"0", "1", "count"}, replace},
     {"join", 1, {"0"}, join},
     {"find", 1, {"0"}, find<Side::begin>},
     {"rfind", 1, {"0"}, find<Side::end>},
     {"count", 1, {"0"}, count},
     {"isdigit", 0, {}, is_digit},
     {"isnumeric", 0, {}, is_digit},
     {"isalpha", 0, {}, is_alpha}}};

// Those of Python that are not known here.
constexpr std::string_view kOtherTextMethods[] = {
    "casefold",   "center",   "encode",    "expandtabs", "format",       "format_map",  "index",
    "isalnum",    "isascii",  "isdecimal", "islower",    "isidentifier", "isprintable", "isspace",
    "istitle",    "isupper",  "ljust",     "maketrans",  "partition",    "rindex",      "rjust",
    "rpartition", "swapcase", "translate", "zfill"};
constexpr std::string_view kMapMethods[] = {"items", "keys", "values", "get", "copy"};
constexpr std::string_view kMapChanges[] = {"clear",   "fromkeys",   "pop",
                                            "popitem", "setdefault", "update"};
constexpr std::string_view kListMethods[] = {"index", "count", "copy"};
constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kLoopMethods[] = {"cycle", "changed"};

bool has(Names names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

Value call_text(Evaluator& evaluator, const Method& method, const Arguments& arguments) {
  const auto* row = std::ranges::find(kTextMethods, method.name, &TextMethodRow::name);
  ZERO_CHECK(row != kTextMethods.end(), "the method '{}' of a str is not known here", method.name);
  ZERO_CHECK(!method.self.is_safe(),
             "the method '{}' of what the filter 'safe' gives is not known here", method.name);
  const auto known = std::ranges::find(row->parameters, std::string_view());
  const Given given(row->name, arguments, std::span(row->parameters.begin(), known), row->needed);
  return row->run(evaluator, *method.self.text(), given);
}

Value call_map(Evaluator& evaluator, const Method& method, const Arguments& arguments) {
  const Map& map = *method.self.map();
  evaluator.budget().make(map.items.size() * 4 * sizeof(Value));
  if (method.name == "get") {
    const Given given("get", arguments, {"key", "default"}, 1);
    const Value* found = map.find(*given.value(0));
    if (found != nullptr) return *found;
    return given.value(1) != nullptr ? *given.value(1) : Value::none();
  }
  const Given given(method.name, arguments, {});
  if (method.name == "copy") return method.self;
  std::vector<Value> items;
  for (const auto& [key, value] : map.items) {
    items.push_back(method.name == "keys"     ? key
                    : method.name == "values" ? value
                                              : Value::list({key, value}, Sequence::tuple));
  }
  return Value::list(std::move(items), Sequence::view);
}

Value call_list(Evaluator& evaluator, const Method& method, const Arguments& arguments) {
  const std::vector<Value>& items = method.self.list()->items;
  if (method.name == "copy") return method.self;
  const Given given(method.name, arguments, {"value"}, 1);
  std::int64_t times = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    evaluator.budget().work(
        std::min(cost_of_equality(items[i]), cost_of_equality(*given.value(0))));
    if (!equal(items[i], *given.value(0))) continue;
    if (method.name == "index") return Value::integer(static_cast<std::int64_t>(i));
    ++times;
  }
  ZERO_CHECK(method.name == "count", "{} is not in list", represented(*given.value(0)).bytes());
  return Value::integer(times);
}

Value call_loop(Evaluator& evaluator, const Method& method, const Arguments& arguments) {
  Loop& loop = **method.self.as<Loop*>();
  const std::vector<Value>& values = arguments.places;
  if (method.name == "cycle") {
    ZERO_CHECK(!values.empty(), "no items for cycling given");
    return values[loop.index % values.size()].chosen_by(loop.origin);
  }
  evaluator.budget().make(values.size() * sizeof(Value));
  for (const Value& value : values) evaluator.budget().work(weight_of(value));
  const bool same = std::ranges::equal(loop.changed, values, equal);
  loop.changed = values;
  return Value::boolean(!same);
}

}  // namespace

std::vector<std::string_view> method_names() {
  std::vector<std::string_view> names;
  for (const TextMethodRow& row : kTextMethods) names.push_back(row.name);
  for (const Names more : {Names(kMapMethods), Names(kListMethods), Names(kLoopMethods)}) {
    names.insert(names.end(), more.begin(), more.end());
  }
  return names;
}

bool has_method(const Value& value, std::string_view name) {
  if (value.text() != nullptr) {
    return has(kOtherTextMethods, name) ||
           std::ranges::find(kTextMethods, name, &TextMethodRow::name) != kTextMethods.end();
  }
  if (value.map() != nullptr) return has(kMapMethods, name) || has(kMapChanges, name);
  if (value.as<Loop*>() != nullptr) return has(kLoopMethods, name);
  const List* list = value.list();
  if (list == nullptr || list->kind == Sequence::generator || list->kind == Sequence::view) {
    return false;
  }
  const bool is_list = list->kind == Sequence::list;
  return name == "index" || name == "count" ||
         (is_list && (has(kListMethods, name) || has(kListChanges, name)));
}

namespace {

Value called(Evaluator& evaluator, const Method& method, const Arguments& arguments) {
  const bool changes = (method.self.map() != nullptr && has(kMapChanges, method.name)) ||
                       (method.self.list() != nullptr && has(kListChanges, method.name));
  ZERO_CHECK(!changes, "access to attribute '{}' of '{}' object is unsafe.", method.name,
             type_name(method.self));
  if (method.self.text() != nullptr) return call_text(evaluator, method, arguments);
  if (method.self.map() != nullptr) return call_map(evaluator, method, arguments);
  if (method.self.list() != nullptr) return call_list(evaluator, method, arguments);
  return call_loop(evaluator, method, arguments);
}

}  // namespace

Value call_method(Evaluator& evaluator, const Method& method, const Arguments& arguments) {
  return made_of(called(evaluator, method, arguments), method.self, arguments);
}

}  // namespace zero::jinja
