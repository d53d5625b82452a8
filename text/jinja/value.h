// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/text.h"

namespace zero::jinja {

class Value;
struct Namespace;
struct Loop;
struct Macro;

/// Bytes of a value, at most.
inline constexpr std::size_t kMostBytes = std::size_t{64} << 20U;

struct None {};
/// A value that is not there; `why` is what its use is refused with.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
/// A function that templates find by name.
struct Function {
  std::string_view name;
};
/// The variants of Python's sequences that templates can tell apart.
enum class Sequence : std::uint8_t { list, tuple, generator, view, range };

struct List {
  std::vector<Value> items;
  Sequence kind = Sequence::list;
  int depth = 1;                          ///< of lists and maps within each other
  std::size_t weight = 0;                 ///< weight_of() the items
  Origin origin = Origin::from_template;  ///< joined, the items'
  mutable bool used = false;              ///< a generator gives its items once
};
/// In the order of insertion.
struct Map {
  std::vector<std::pair<Value, Value>> items;
  int depth = 1;
  std::size_t weight = 0;
  Origin origin = Origin::from_template;  ///< joined, the keys'
  const Value* find(const Value& key) const;
};
struct Method;

/// A value of a template. Values are immutable but for namespaces, whose owner is the evaluator.
class Value {
 public:
  using Variant =
      std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>,
                   std::shared_ptr<const List>, std::shared_ptr<const Map>, Namespace*, Loop*,
                   const Macro*, Function, std::shared_ptr<const Method>>;

  Value() = default;
  Value(Variant variant) : variant_(std::move(variant)) {}  // NOLINT(google-explicit-constructor)
  explicit Value(Text text) : variant_(std::make_shared<const Text>(std::move(text))) {}
  /// Text of the template.
  static Value text(std::string_view bytes) { return Value(Text(bytes, Origin::from_template)); }
  static Value boolean(bool value) { return Value(Variant(value)); }
  static Value integer(std::int64_t value) { return Value(Variant(value)); }
  static Value none() { return Value(Variant(None{})); }
  static Value undefined(std::string why);
  /// Throws zero::Error if it is nested too deeply, or too large.
  static Value list(std::vector<Value> items, Sequence kind = Sequence::list);
  static Value map(std::vector<std::pair<Value, Value>> items);
  /// Text that must not be changed any more: what the filter "safe" gives.
  static Value safe(const Text& text);

  template <typename T>
  const T* as() const {
    return std::get_if<T>(&variant_);
  }
  const Text* text() const { return pointed<Text>(); }
  const List* list() const { return pointed<List>(); }
  const Map* map() const { return pointed<Map>(); }
  bool is_undefined() const { return as<Undefined>() != nullptr; }
  bool is_none() const { return as<None>() != nullptr; }
  /// Booleans are numbers too.
  bool is_number() const { return is_integer() || as<double>() != nullptr; }
  bool is_integer() const { return as<std::int64_t>() != nullptr || as<bool>() != nullptr; }
  std::int64_t integer() const;
  double number() const;
  bool is_safe() const { return safe_; }
  /// That of the text that it is written as: content if contents are in it, chose it or were
  /// counted for it. Of maps the keys alone count: a list of messages is no content.
  Origin origin() const;
  /// The same without the items of a list or map: content if contents chose these.
  Origin own_origin() const { return origin_; }
  /// The value with this origin, but for a text, whose bytes keep theirs.
  Value with_origin(Origin origin) const;
  /// The value as something of this origin chose it among the template's: if content did, an empty
  /// text is a border, and any other value but a text is content.
  Value chosen_by(Origin origin) const;

 private:
  template <typename T>
  const T* pointed() const {
    const auto* pointer = as<std::shared_ptr<const T>>();
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Variant variant_;
  bool safe_ = false;
  Origin origin_ = Origin::from_template;  // of all but a text
};

/// A method of a value.
struct Method {
  Value self;
  std::string name;
};
struct Namespace {
  std::vector<std::pair<std::string, Value>> items;
};
/// The values that a call gives, by place and by name, by their places and by their names.
struct Arguments {
  std::vector<Value> places;
  std::vector<std::pair<std::string, Value>> named;
};

/// What a value costs to be compared or written: its bytes, each time that it stands there.
std::size_t weight_of(const Value& value);
/// What equal() may read of a value, in bytes: in maps, each key is looked for among all.
std::size_t cost_of_equality(const Value& value);
/// Python's name of the type, as "str".
std::string type_name(const Value& value);
/// Throws zero::Error if `value` is undefined.
void check_defined(const Value& value);
bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
/// Negative, 0 or positive. Throws zero::Error for values without an order; `sign` is of the
/// operator.
int compare(const Value& a, const Value& b, std::string_view sign);
/// Python's str() and repr().
Text shown(const Value& value);
Text represented(const Value& value);

struct JsonForm {
  std::int64_t indent = -1;  ///< negative: in one line
  Escapes escapes = Escapes::needed;
  Text between{", ", Origin::from_template};
  Text colon{": ", Origin::from_template};
  bool sorted = false;
  std::size_t most = kMostBytes;  ///< bytes
};
/// Python's json.dumps().
Text json_of(const Value& value, const JsonForm& form);

}  // namespace zero::jinja
