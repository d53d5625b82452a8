// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace zero::jinja {
namespace {

constexpr int kDeepest = 64;  // lists and maps within each other

int depth_of(const Value& value) {
  if (const List* list = value.list()) return list->depth;
  if (const Map* map = value.map()) return map->depth;
  if (const auto* method = value.as<std::shared_ptr<const Method>>()) {
    return 1 + depth_of((*method)->self);
  }
  return 0;
}

/// Adds an item to the depth and weight of its list or map. Throws zero::Error above the limits.
template <typename Collection>
void account_for(Collection& collection, const Value& item) {
  collection.depth = std::max(collection.depth, 1 + depth_of(item));
  collection.weight += weight_of(item);
  ZERO_CHECK(collection.depth <= kDeepest && collection.weight <= kMostBytes,
             "lists and maps lie {} deep within each other and have {} bytes; expected at most {} "
             "and {}",
             collection.depth, collection.weight, kDeepest, kMostBytes);
}

Text plain(std::string_view bytes) { return {bytes, Origin::from_template}; }
const Text kNothing;

std::string real(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

bool equal_items(const List& a, const List& b) {
  if (a.items.size() != b.items.size() || a.kind != b.kind) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(a.items[i], b.items[i])) return false;
  }
  return true;
}

bool equal_maps(const Map& a, const Map& b) {
  if (a.items.size() != b.items.size()) return false;
  return std::ranges::all_of(a.items, [&](const auto& item) {
    const Value* other = b.find(item.first);
    return other != nullptr && equal(item.second, *other);
  });
}

Text enclosed(const List& list) {
  const bool tuple = list.kind == Sequence::tuple;
  Text out = plain(tuple ? "(" : "[");
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(plain(", "));
    out.append(represented(list.items[i]));
  }
  if (tuple && list.items.size() == 1) out.append(plain(","));
  out.append(plain(tuple ? ")" : "]"));
  return out;
}

Text enclosed(const Map& map) {
  Text out = plain("{");
  for (std::size_t i = 0; i < map.items.size(); ++i) {
    if (i > 0) out.append(plain(", "));
    out.append(represented(map.items[i].first));
    out.append(plain(": "));
    out.append(represented(map.items[i].second));
  }
  out.append(plain("}"));
  return out;
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonForm& form) : form_(form) {}

  void write(const Value& value) {
    if (const Text* text = value.text()) return out_.append(json_quoted(*text, form_.escapes));
    if (const List* list = value.list()) return write_list(*list);
    if (const Map* map = value.map()) return write_map(*map);
    out_.append(scalar(value), value.origin());
  }
  Text take() { return std::move(out_); }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* truth = value.as<bool>()) return *truth ? "true" : "false";
    if (value.is_integer()) return fmt::format("{}", value.integer());
    const double* number = value.as<double>();
    ZERO_CHECK(number != nullptr, "Object of type {} is not JSON serializable", type_name(value));
    if (std::isnan(*number)) return "NaN";
    if (std::isinf(*number)) return *number > 0 ? "Infinity" : "-Infinity";
    return real(*number);
  }
  void write_list(const List& list) {
    ZERO_CHECK(list.kind == Sequence::list || list.kind == Sequence::tuple,
               "Object of type {} is not JSON serializable", type_name(Value::list({}, list.kind)));
    out_.append(plain("["));
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      begin_item(i == 0 ? kNothing : form_.between);
      ++level_;
      write(list.items[i]);
      --level_;
    }
    end_items(list.items.empty());
    out_.append(plain("]"));
  }
  void write_map(const Map& map) {
    std::vector<const std::pair<Value, Value>*> items;
    items.reserve(map.items.size());
    for (const auto& item : map.items) items.push_back(&item);
    if (form_.sorted) {
      std::ranges::stable_sort(
          items, [](const auto* a, const auto* b) { return compare(a->first, b->first, "<") < 0; });
    }
    out_.append(plain("{"));
    for (std::size_t i = 0; i < items.size(); ++i) {
      begin_item(i == 0 ? kNothing : form_.between);
      const Value& key = items[i]->first;
      out_.append(json_quoted(key.text() != nullptr ? *key.text() : Text(scalar(key), key.origin()),
                              form_.escapes));
      out_.append(form_.colon);
      ++level_;
      write(items[i]->second);
      --level_;
    }
    end_items(items.empty());
    out_.append(plain("}"));
  }
  void begin_item(const Text& between) {
    ZERO_CHECK(out_.size() <= form_.most, "tojson writes more than {} bytes", form_.most);
    out_.append(between);
    new_line(level_ + 1);
  }
  void end_items(bool none) {
    if (!none) new_line(level_);
  }
  void new_line(std::int64_t level) {
    if (form_.indent < 0) return;
    out_.append(plain(fmt::format("\n{:{}}", "", level * form_.indent)));
  }

  const JsonForm& form_;
  std::int64_t level_ = 0;
  Text out_;
};

}  // namespace

const Value* Map::find(const Value& key) const {
  const auto found =
      std::ranges::find_if(items, [&](const auto& item) { return equal(item.first, key); });
  return found == items.end() ? nullptr : &found->second;
}

Value Value::undefined(std::string why) {
  return {Variant(Undefined{std::make_shared<const std::string>(std::move(why))})};
}

Value Value::list(std::vector<Value> items, Sequence kind) {
  List list{.items = std::move(items), .kind = kind};
  for (const Value& item : list.items) {
    account_for(list, item);
    list.origin = joined(list.origin, item.origin());
  }
  return {Variant(std::make_shared<const List>(std::move(list)))};
}

Value Value::map(std::vector<std::pair<Value, Value>> items) {
  Map map{.items = std::move(items)};
  for (const auto& [key, value] : map.items) {
    ZERO_CHECK(key.map() == nullptr && (key.list() == nullptr || key.list()->depth == 1),
               "unhashable type: '{}'", type_name(key));
    account_for(map, key);
    account_for(map, value);
    map.origin = joined(map.origin, key.origin());
  }
  return {Variant(std::make_shared<const Map>(std::move(map)))};
}

Value Value::safe(const Text& text) {
  Value value{text};
  value.safe_ = true;
  return value;
}

Origin Value::origin() const {
  if (const Text* of_text = text()) return of_text->origin();
  if (list() != nullptr) return joined(origin_, list()->origin);
  return map() != nullptr ? joined(origin_, map()->origin) : origin_;
}

Value Value::with_origin(Origin origin) const {
  Value value = *this;
  value.origin_ = origin;
  return value;
}

Value Value::chosen_by(Origin origin) const {
  if (origin == Origin::from_template) return *this;
  if (text() == nullptr) return with_origin(origin);
  return text()->empty() ? Value(Text("", origin)) : *this;
}

std::int64_t Value::integer() const {
  const bool* truth = as<bool>();
  return truth != nullptr ? static_cast<std::int64_t>(*truth) : *as<std::int64_t>();
}

double Value::number() const {
  const double* real = as<double>();
  return real != nullptr ? *real : static_cast<double>(integer());
}

std::size_t weight_of(const Value& value) {
  if (const Text* text = value.text()) return 8 + text->size();
  if (const List* list = value.list()) return 8 + list->weight;
  if (const Map* map = value.map()) return 8 + map->weight;
  return 8;
}

std::size_t cost_of_equality(const Value& value) {
  std::size_t cost = weight_of(value);
  if (const List* list = value.list()) {
    for (const Value& item : list->items) {
      if (item.list() != nullptr || item.map() != nullptr) cost += cost_of_equality(item);
    }
  }
  if (const Map* map = value.map()) {
    cost += map->items.size() * map->items.size() * 8;
    for (const auto& [key, item] : map->items)
      cost += cost_of_equality(key) + cost_of_equality(item);
  }
  return cost;
}

std::string type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.as<bool>() != nullptr) return "bool";
  if (value.as<std::int64_t>() != nullptr) return "int";
  if (value.as<double>() != nullptr) return "float";
  if (value.text() != nullptr) return "str";
  if (value.map() != nullptr) return "dict";
  if (const List* list = value.list()) {
    constexpr const char* kNames[] = {"list", "tuple", "generator", "dict_items", "range"};
    return kNames[static_cast<std::size_t>(list->kind)];
  }
  if (value.as<Namespace*>() != nullptr) return "Namespace";
  if (value.as<Loop*>() != nullptr) return "LoopContext";
  if (value.as<const Macro*>() != nullptr) return "Macro";
  return value.as<Function>() != nullptr ? "function" : "builtin_function_or_method";
}

void check_defined(const Value& value) {
  if (const auto* undefined = value.as<Undefined>()) {
    fail("{}", undefined->why != nullptr ? *undefined->why : "a value is undefined");
  }
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_number()) return value.number() != 0;
  if (const Text* text = value.text()) return !text->empty();
  if (const Map* map = value.map()) return !map->items.empty();
  const List* list = value.list();
  return list == nullptr || list->kind == Sequence::generator || !list->items.empty();
}

bool equal(const Value& a, const Value& b) {
  if (a.is_undefined() || a.is_none()) {
    return a.is_undefined() ? b.is_undefined() : b.is_none();
  }
  if (a.is_integer() && b.is_integer()) return a.integer() == b.integer();
  if (a.is_number()) return b.is_number() && a.number() == b.number();
  if (a.text() != nullptr) return b.text() != nullptr && a.text()->bytes() == b.text()->bytes();
  if (a.list() != nullptr) {
    const bool generator = a.list()->kind == Sequence::generator;
    return b.list() != nullptr &&
           (generator ? a.list() == b.list() : equal_items(*a.list(), *b.list()));
  }
  if (a.map() != nullptr) return b.map() != nullptr && equal_maps(*a.map(), *b.map());
  const auto same = [&]<typename T>(const T* const* x, const T* const* y) {
    return x != nullptr && y != nullptr && *x == *y;
  };
  const auto* space = a.as<Namespace*>();
  const auto* other = b.as<Namespace*>();
  return (space != nullptr && other != nullptr && *space == *other) ||
         same(a.as<const Macro*>(), b.as<const Macro*>());
}

int compare(const Value& a, const Value& b, std::string_view sign) {
  check_defined(a);
  check_defined(b);
  if (a.is_integer() && b.is_integer()) {
    return a.integer() < b.integer() ? -1 : static_cast<int>(a.integer() > b.integer());
  }
  if (a.is_number() && b.is_number()) {
    ZERO_CHECK(!std::isnan(a.number()) && !std::isnan(b.number()), "a number is not one");
    return a.number() < b.number() ? -1 : static_cast<int>(a.number() > b.number());
  }
  if (a.text() != nullptr && b.text() != nullptr) {
    return a.text()->bytes().compare(b.text()->bytes());
  }
  const bool lists = a.list() != nullptr && b.list() != nullptr &&
                     a.list()->kind == b.list()->kind && a.list()->kind <= Sequence::tuple;
  ZERO_CHECK(lists, "'{}' not supported between instances of '{}' and '{}'", sign, type_name(a),
             type_name(b));
  const auto& left = a.list()->items;
  const auto& right = b.list()->items;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (!equal(left[i], right[i])) return compare(left[i], right[i], sign);
  }
  return left.size() < right.size() ? -1 : static_cast<int>(left.size() > right.size());
}

Text shown(const Value& value) {
  if (value.is_undefined()) return {"", value.origin()};
  return value.text() != nullptr ? *value.text() : represented(value);
}

Text represented(const Value& value) {
  if (value.is_undefined()) return plain("Undefined");
  if (value.is_none()) return {"None", value.origin()};
  if (const bool* truth = value.as<bool>()) return {*truth ? "True" : "False", value.origin()};
  if (value.is_integer()) return {fmt::format("{}", value.integer()), value.origin()};
  if (const double* number = value.as<double>()) return {real(*number), value.origin()};
  if (const Text* text = value.text()) return quoted(*text);
  if (const Map* map = value.map()) return enclosed(*map);
  const List* list = value.list();
  ZERO_CHECK(list != nullptr && list->kind <= Sequence::tuple,
             "a {} has no text of its own that could be written; expected a text, a number, a list "
             "or a map",
             type_name(value));
  return enclosed(*list);
}

Text json_of(const Value& value, const JsonForm& form) {
  JsonWriter writer(form);
  writer.write(value);
  return writer.take();
}

}  // namespace zero::jinja
