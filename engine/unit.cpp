// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/unit.h"

#include <fmt/ranges.h>

#include "base/error.h"

namespace zero {

void Unit::lay_out(int world, std::int64_t small) {
  segments.clear();
  seats.assign(specs.size(), {});
  for (const bool trainable_pass : {true, false}) {
    std::vector<ParameterSpec> chosen;
    std::vector<int> members;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].trainable != trainable_pass) continue;
      seats[i] = {static_cast<int>(segments.size()), static_cast<int>(members.size())};
      members.push_back(static_cast<int>(i));
      chosen.push_back(specs[i]);
    }
    if (!chosen.empty())
      segments.emplace_back(FlatLayout(chosen, world, small), members, trainable_pass);
  }
}

const Unit::Seat& Unit::seat(int parameter) const {
  ZERO_CHECK(parameter >= 0 && parameter < static_cast<int>(seats.size()),
             "unit \"{}\" has no parameter {}; it has {}", name, parameter, seats.size());
  return seats[static_cast<std::size_t>(parameter)];
}

const Placement& Unit::placement(int parameter) const {
  const Seat& at = seat(parameter);
  return segments[static_cast<std::size_t>(at.segment)]
      .layout.placements()[static_cast<std::size_t>(at.position)];
}

const Segment& Unit::segment_of(int parameter) const {
  return segments[static_cast<std::size_t>(seat(parameter).segment)];
}

int Unit::find(std::string_view parameter) const {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == parameter || full_names[i] == parameter) return static_cast<int>(i);
    names.emplace_back(specs[i].name);
  }
  fail("unit \"{}\" has no parameter \"{}\"; it has {}", name, parameter, fmt::join(names, ", "));
}

Segment* Unit::trainable() {
  return !segments.empty() && segments.front().trainable ? &segments.front() : nullptr;
}
const Segment* Unit::trainable() const {
  return !segments.empty() && segments.front().trainable ? &segments.front() : nullptr;
}

}  // namespace zero
