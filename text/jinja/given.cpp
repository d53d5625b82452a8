// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "text/jinja/evaluator.h"

namespace zero::jinja {

Given::Given(std::string_view function, const Arguments& arguments,
             std::span<const std::string_view> names, std::size_t needed)
    : function_(function), values_(names.size(), nullptr) {
  ZERO_CHECK(arguments.places.size() <= names.size(), "{} takes at most {} arguments ({} given)",
             function, names.size(), arguments.places.size());
  for (std::size_t i = 0; i < arguments.places.size(); ++i) values_[i] = &arguments.places[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(names, name);
    ZERO_CHECK(found != names.end(), "{} got an unexpected keyword argument '{}'", function, name);
    auto& place = values_[static_cast<std::size_t>(found - names.begin())];
    ZERO_CHECK(place == nullptr, "{} got multiple values for argument '{}'", function, name);
    place = &value;
  }
  for (std::size_t i = 0; i < needed; ++i) {
    ZERO_CHECK(values_[i] != nullptr, "{} missing its argument {}", function, i + 1);
  }
}

bool Given::truth(std::size_t place) const {
  return values_[place] != nullptr && jinja::truth(*values_[place]);
}

std::int64_t Given::integer(std::size_t place, std::int64_t otherwise) const {
  const Value* value = values_[place];
  if (value == nullptr || value->is_none()) return otherwise;
  ZERO_CHECK(value->is_integer(), "{}: '{}' object cannot be interpreted as an integer", function_,
             type_name(*value));
  return value->integer();
}

Origin Given::origin(std::size_t place) const {
  return values_[place] != nullptr ? values_[place]->origin() : Origin::from_template;
}

Text Given::text(std::size_t place, std::string_view otherwise) const {
  const Value* value = values_[place];
  return value != nullptr ? shown(*value) : Text(otherwise, Origin::from_template);
}

const Text& Given::needed_text(std::size_t place) const {
  check_defined(*values_[place]);
  const Text* text = values_[place]->text();
  ZERO_CHECK(text != nullptr, "{}: expected a str, not '{}'", function_,
             type_name(*values_[place]));
  return *text;
}

std::int64_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const Text* text = value.text()) return std::ssize(character_borders(text->bytes())) - 1;
  if (const Map* map = value.map()) return std::ssize(map->items);
  const List* list = value.list();
  ZERO_CHECK(list != nullptr && list->kind != Sequence::generator,
             "object of type '{}' has no len()", type_name(value));
  return std::ssize(list->items);
}

}  // namespace zero::jinja
