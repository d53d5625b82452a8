// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/filters.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

namespace zero::jinja {
namespace {

Value trim(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Given given("trim", arguments, {"chars"});
  const bool all = given.value(0) == nullptr || given.value(0)->is_none();
  const std::string set = given.text(0).bytes();
  evaluator.budget().search(weight_of(input), set.size());
  return Value(stripped(shown(input), Sides::both, all ? nullptr : &set));
}

template <Case kCase>
Value in_case_of(Evaluator& /*evaluator*/, const Value& input, const Arguments& arguments) {
  const Given given("upper, lower or capitalize", arguments, {});
  return Value(in_case(shown(input), kCase));
}

/// Unlike the method title, a word begins behind white space, "-", or an opening bracket alone.
Value title(Evaluator& /*evaluator*/, const Value& input, const Arguments& arguments) {
  const Given given("title", arguments, {});
  const Text text = shown(input);
  const auto borders = character_borders(text.bytes());
  Text out = text.part(0, 0);
  bool first = true;
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    const Text each = text.part(borders[i], borders[i + 1]);
    out.append(in_case(each, first ? Case::upper : Case::lower));
    const bool blank = stripped(each, Sides::both, nullptr).empty();
    first = blank || std::string_view("-({[<").find(each.bytes()) != std::string_view::npos;
  }
  return Value(std::move(out));
}

Value usual(Evaluator& /*evaluator*/, const Value& input, const Arguments& arguments) {
  const Given given("default", arguments, {"default_value", "boolean"});
  const bool missing = input.is_undefined() || (given.truth(1) && !truth(input));
  if (!missing) return input;
  const Value instead = given.value(0) != nullptr ? *given.value(0) : Value::text("");
  return instead.chosen_by(input.origin());
}

Value length(Evaluator& /*evaluator*/, const Value& input, const Arguments& arguments) {
  const Given given("length", arguments, {});
  return Value::integer(length_of(input));
}

Value replace(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Given given("replace", arguments, {"old", "new", "count"}, 2);
  return replaced_in(evaluator, shown(input),
                     {.from = given.text(0),
                      .to = given.text(1),
                      .most = given.integer(2, -1),
                      .counted = given.origin(2)});
}

Value string(Evaluator& /*evaluator*/, const Value& input, const Arguments& arguments) {
  const Given given("string", arguments, {});
  return Value(shown(input));
}

Value safe(Evaluator& /*evaluator*/, const Value& input, const Arguments& arguments) {
  const Given given("safe", arguments, {});
  return Value::safe(shown(input));
}

/// A number as Python's int() and float() read it: digits with "_" between, a sign, white space.
std::string number_text(const Text& text) {
  std::string digits = stripped(text, Sides::both, nullptr).bytes();
  if (digits.starts_with('+')) digits.erase(0, 1);
  ZERO_CHECK(digits.find('_') == std::string::npos,
             "a text with '_' is not read as a number here; leave them out");
  return digits;
}

template <typename Number>
std::optional<Number> parsed(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  ZERO_CHECK(error != std::errc::result_out_of_range, "the number {} is too large",
             text.substr(0, 40));
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

std::optional<std::int64_t> whole(double value) {
  if (std::isnan(value)) return std::nullopt;
  ZERO_CHECK(std::fabs(value) < 9e18, "the number {} is too large", value);
  return static_cast<std::int64_t>(value);
}

std::optional<double> real_of(const Value& input) {
  if (input.is_number()) return input.number();
  return input.text() != nullptr ? parsed<double>(number_text(*input.text())) : std::nullopt;
}

Value integer(Evaluator& /*evaluator*/, const Value& input, const Arguments& arguments) {
  const Given given("int", arguments, {"default", "base"});
  check_defined(input);
  ZERO_CHECK(given.integer(1, 10) == 10, "int: base {} is not known here", given.integer(1, 10));
  if (input.is_integer()) return Value::integer(input.integer());
  if (input.text() != nullptr) {
    if (const auto number = parsed<std::int64_t>(number_text(*input.text()))) {
      return Value::integer(*number);
    }
  }
  const std::optional<double> real = real_of(input);
  const std::optional<std::int64_t> number = real ? whole(*real) : std::nullopt;
  if (number) return Value::integer(*number);
  return given.value(0) != nullptr ? *given.value(0) : Value::integer(0);
}

Value real(Evaluator& /*evaluator*/, const Value& input, const Arguments& arguments) {
  const Given given("float", arguments, {"default"});
  check_defined(input);
  const std::optional<double> number = real_of(input);
  if (number) return Value(Value::Variant(*number));
  return given.value(0) != nullptr ? *given.value(0) : Value(Value::Variant(0.0));
}

Value absolute(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Given given("abs", arguments, {});
  check_defined(input);
  ZERO_CHECK(input.is_number(), "bad operand type for abs(): '{}'", type_name(input));
  return input.number() < 0 ? operate(evaluator, "-", Value::integer(0), input) : input;
}

Value indent(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Given given("indent", arguments, {"width", "first", "blank"});
  const Value* width = given.value(0);
  constexpr std::int64_t kWidest = 1024;
  Text by;
  if (width != nullptr && width->text() != nullptr) {
    by = *width->text();
  } else {
    const std::int64_t spaces = std::max<std::int64_t>(given.integer(0, 4), 0);
    ZERO_CHECK(spaces <= kWidest, "indent by {}; expected at most {}", spaces, kWidest);
    by = Text(std::string(static_cast<std::size_t>(spaces), ' '), Origin::from_template);
  }
  Text text = shown(input);
  text.append("\n", Origin::from_template);
  const std::vector<Line> lines = lines_of(text);
  evaluator.budget().make(text.size() + lines.size() * (by.size() + 1));
  Text out = text.part(0, 0);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", lines[i - 1].end.origin(0));
    const bool indented = i == 0 ? given.truth(1) : given.truth(2) || !lines[i].text.empty();
    if (indented) out.append(by);
    out.append(lines[i].text);
  }
  return Value(std::move(out));
}

Value tojson(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Given given("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  constexpr std::int64_t kWidest = 64;
  const bool indented = given.value(1) != nullptr && !given.value(1)->is_none();
  JsonForm form{.indent = indented ? std::max<std::int64_t>(given.integer(1, 0), 0) : -1,
                .escapes = given.truth(0) ? Escapes::all_but_ascii : Escapes::needed,
                .between = Text(indented ? "," : ", ", Origin::from_template),
                .sorted = given.truth(3)};
  ZERO_CHECK(form.indent <= kWidest, "tojson: indent is {}; expected at most {}", form.indent,
             kWidest);
  if (const Value* both = given.value(2); both != nullptr && !both->is_none()) {
    const List* list = both->list();
    ZERO_CHECK(list != nullptr && list->items.size() == 2 && list->items[0].text() != nullptr &&
                   list->items[1].text() != nullptr,
               "tojson: separators: expected two texts");
    form.between = *list->items[0].text();
    form.colon = *list->items[1].text();
  }
  Text out = json_of(input, form);
  evaluator.budget().make(out.size());
  return Value(std::move(out));
}

constexpr std::array<std::pair<std::string_view, Filter>, 17> kFilters{
    {{"trim", trim},
     {"upper", in_case_of<Case::upper>},
     {"lower", in_case_of<Case::lower>},
     {"capitalize", in_case_of<Case::capital>},
     {"title", title},
     {"default", usual},
     {"d", usual},
     {"length", length},
     {"count", length},
     {"replace", replace},
     {"string", string},
     {"safe", safe},
     {"int", integer},
     {"float", real},
     {"abs", absolute},
     {"indent", indent},
     {"tojson", tojson}}};

/// Those of Jinja that are not known here.
constexpr std::array<std::string_view, 24> kOthers{
    "attr",        "batch",     "center",  "e",         "escape",   "filesizeformat",
    "forceescape", "format",    "groupby", "max",       "min",      "pprint",
    "random",      "round",     "slice",   "striptags", "sum",      "truncate",
    "unique",      "urlencode", "urlize",  "wordcount", "wordwrap", "xmlattr"};

}  // namespace

Value replaced_in(Evaluator& evaluator, const Text& text, Replacement replacement) {
  auto& [from, to, most, counted] = replacement;
  from.append("", counted);  // contents that count say where the text falls into two
  Budget& budget = evaluator.budget();
  budget.search(text.size(), from.size());
  std::size_t times = 0;
  if (from.empty()) {
    times = text.size() + 1;
  } else {
    for (std::size_t at = 0; (at = text.bytes().find(from.bytes(), at)) != std::string::npos;) {
      ++times;
      at += from.size();
    }
  }
  if (most >= 0) times = std::min(times, static_cast<std::size_t>(most));
  budget.make(text.size());
  for (std::size_t i = 0; i < times; ++i) budget.make(to.size());
  return Value(replaced(text, from, to, most));
}

std::vector<std::string_view> filter_names() {
  std::vector<std::string_view> names = list_filter_names();
  for (const auto& [name, filter] : kFilters) names.push_back(name);
  return names;
}

namespace {

Value filtered(Evaluator& evaluator, const std::string& name, const Value& input,
               const Arguments& arguments) {
  const bool reads_safe = name == "safe" || name == "default" || name == "d" || name == "length";
  ZERO_CHECK(!input.is_safe() || reads_safe,
             "the filter '{}' behind 'safe' is not known here; leave 'safe' out", name);
  const auto found = std::ranges::find(kFilters, name, &std::pair<std::string_view, Filter>::first);
  if (found != kFilters.end()) return found->second(evaluator, input, arguments);
  if (const Filter filter = list_filter(name)) return filter(evaluator, input, arguments);
  ZERO_CHECK(std::ranges::find(kOthers, name) == kOthers.end(), "the filter '{}' is not known here",
             name);
  fail("No filter named '{}'.", name);
}

}  // namespace

Value apply_filter(Evaluator& evaluator, const std::string& name, const Value& input,
                   const Arguments& arguments) {
  return made_of(filtered(evaluator, name, input, arguments), input, arguments);
}

}  // namespace zero::jinja
