// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "text/jinja/evaluator.h"

namespace zero::jinja {
namespace {

using Run = Value (*)(Evaluator& evaluator, const Arguments& arguments);

Value raise_exception(Evaluator& /*evaluator*/, const Arguments& arguments) {
  const Given given("raise_exception", arguments, {"message"}, 1);
  throw Error(given.text(0).bytes());
}

/// Behind the conversion of strftime that begins with the "%" at `at`, or behind other text.
std::size_t conversion_end(const std::string& format, std::size_t at) {
  if (format[at] != '%') return std::min(format.find('%', at), format.size());
  const std::size_t modifiers = format.find_first_not_of("_-0^#+123456789", at + 1);
  const std::size_t letter = format.find_first_not_of("EO", std::min(modifiers, format.size()));
  return std::min(letter, format.size() - 1) + 1;
}

/// Each conversion is its own, so that what a content writes of a format stays content.
Value strftime_now(Evaluator& evaluator, const Arguments& arguments) {
  const Given given("strftime_now", arguments, {"format"}, 1);
  const Text& format = given.needed_text(0);
  std::array<char, 256> text{};
  Text out;
  for (std::size_t at = 0, end = 0; at < format.size(); at = end) {
    end = conversion_end(format.bytes(), at);
    const Text part = format.part(at, end);
    if (part.bytes()[0] != '%') {
      out.append(part);
      continue;
    }
    evaluator.budget().work(256);
    const std::string one = part.bytes() + ".";  // an empty result is one too
    const std::size_t size = std::strftime(text.data(), text.size(), one.c_str(), &evaluator.now());
    if (size > 0) out.append({text.data(), size - 1}, part.origin(0));
    ZERO_CHECK(size > 0 && out.size() < text.size() && one.find('\0') == std::string::npos,
               "strftime_now: the format \"{}\" gives more than {} bytes",
               format.bytes().substr(0, 100), text.size());
  }
  return Value(std::move(out));
}

Value range(Evaluator& evaluator, const Arguments& arguments) {
  const Given given("range", arguments, {"start", "stop", "step"}, 1);
  constexpr std::int64_t kMost = 100'000;
  const bool one = given.value(1) == nullptr;
  const std::int64_t start = one ? 0 : given.integer(0, 0);
  const std::int64_t stop = one ? given.integer(0, 0) : given.integer(1, 0);
  const std::int64_t step = given.integer(2, 1);
  ZERO_CHECK(step != 0, "range() arg 3 must not be zero");
  Origin origin = Origin::from_template;
  for (std::size_t i = 0; i < 3; ++i) {
    if (given.value(i) == nullptr) continue;
    check_defined(*given.value(i));
    origin = joined(origin, given.value(i)->origin());
  }
  std::vector<Value> items;
  std::int64_t at = start;
  while (step > 0 ? at < stop : at > stop) {
    ZERO_CHECK(std::ssize(items) < kMost,
               "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMost);
    items.push_back(Value::integer(at).with_origin(origin));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  evaluator.budget().make(items.size() * sizeof(Value));
  return Value::list(std::move(items), Sequence::range);
}

/// The items of a map that is the one argument, and those with names.
std::vector<std::pair<Text, Value>> named_items(std::string_view function,
                                                const Arguments& arguments) {
  std::vector<std::pair<Text, Value>> items;
  const auto set = [&](const Text& name, const Value& value) {
    const auto found = std::ranges::find_if(
        items, [&](const auto& item) { return item.first.bytes() == name.bytes(); });
    if (found == items.end()) {
      items.emplace_back(name, value);
    } else {
      found->second = value;
    }
  };
  ZERO_CHECK(arguments.places.size() <= 1, "{} takes one map at most, and names", function);
  for (const Value& given : arguments.places) {
    ZERO_CHECK(given.map() != nullptr, "{} of a '{}' is not known here; give a map", function,
               type_name(given));
    for (const auto& [key, value] : given.map()->items) {
      ZERO_CHECK(key.text() != nullptr, "{} of a map with a key of '{}' is not known here",
                 function, type_name(key));
      set(*key.text(), value);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    set(Text(name, Origin::from_template), value);
  }
  return items;
}

void pay_for_items(Evaluator& evaluator, const Arguments& arguments) {
  std::size_t items = arguments.named.size();
  for (const Value& given : arguments.places) {
    if (given.map() != nullptr) items += given.map()->items.size();
  }
  evaluator.budget().make(items * 2 * sizeof(Value));
  evaluator.budget().work(items * items * 8);
}

Value make_namespace(Evaluator& evaluator, const Arguments& arguments) {
  pay_for_items(evaluator, arguments);
  std::vector<std::pair<std::string, Value>> items;
  for (auto& [name, value] : named_items("namespace", arguments)) {
    items.emplace_back(name.bytes(), std::move(value));
  }
  return evaluator.new_namespace(std::move(items));
}

Value make_map(Evaluator& evaluator, const Arguments& arguments) {
  pay_for_items(evaluator, arguments);
  std::vector<std::pair<Value, Value>> items;
  for (auto& [name, value] : named_items("dict", arguments)) {
    items.emplace_back(Value(std::move(name)), std::move(value));
  }
  return Value::map(std::move(items));
}

template <typename T>
Value not_known(Evaluator& /*evaluator*/, const Arguments& /*arguments*/) {
  fail("'{}' is not known here", T::kName);
}
struct Cycler {
  static constexpr const char* kName = "cycler";
};
struct Joiner {
  static constexpr const char* kName = "joiner";
};
struct Lipsum {
  static constexpr const char* kName = "lipsum";
};

constexpr std::array<std::pair<std::string_view, Run>, 8> kFunctions{
    {{"raise_exception", raise_exception},
     {"strftime_now", strftime_now},
     {"range", range},
     {"namespace", make_namespace},
     {"dict", make_map},
     {"cycler", not_known<Cycler>},
     {"joiner", not_known<Joiner>},
     {"lipsum", not_known<Lipsum>}}};

const std::pair<std::string_view, Run>* find(std::string_view name) {
  const auto* found = std::ranges::find(kFunctions, name, &std::pair<std::string_view, Run>::first);
  return found != kFunctions.end() ? found : nullptr;
}

}  // namespace

Value global_function(const std::string& name) {
  const auto* found = find(name);
  return found != nullptr ? Value(Value::Variant(Function{found->first})) : Value();
}

std::vector<std::string_view> function_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, run] : kFunctions) names.push_back(name);
  return names;
}

Value call_function(Evaluator& evaluator, std::string_view name, const Arguments& arguments) {
  return made_of(find(name)->second(evaluator, arguments), {}, arguments);
}

}  // namespace zero::jinja
