// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "architecture/name_map.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace zero {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Whether `name` matches `pattern`, in which every `*` stands for one or more digits.
bool fits(std::string_view pattern, std::string_view name) {
  for (const char expected : pattern) {
    if (expected != '*') {
      if (name.empty() || name.front() != expected) return false;
      name.remove_prefix(1);
      continue;
    }
    const auto end = std::find_if_not(name.begin(), name.end(), is_digit);
    if (end == name.begin()) return false;
    name.remove_prefix(static_cast<std::size_t>(end - name.begin()));
  }
  return name.empty();
}

}  // namespace

std::string_view NameMap::bare(std::string_view name) const {
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return name;
}

bool NameMap::ignores(std::string_view bare_name) const {
  const auto ends = [&](const std::string& end) {
    if (!bare_name.ends_with(end)) return false;
    return bare_name.size() == end.size() || bare_name[bare_name.size() - end.size() - 1] == '.';
  };
  return std::any_of(ignored.begin(), ignored.end(),
                     [&](const std::string& pattern) { return fits(pattern, bare_name); }) ||
         std::any_of(ignored_ends.begin(), ignored_ends.end(), ends);
}

const NameMap::Alias* NameMap::alias(std::string_view bare_name) const {
  const auto found = std::find_if(aliases.begin(), aliases.end(),
                                  [&](const Alias& entry) { return entry.name == bare_name; });
  return found == aliases.end() ? nullptr : &*found;
}

std::string NameMap::ignored_text() const {
  std::vector<std::string> all = ignored;
  all.insert(all.end(), ignored_ends.begin(), ignored_ends.end());
  for (const Alias& entry : aliases) all.push_back(entry.name);
  return all.empty() ? "none" : fmt::format("{}", fmt::join(all, ", "));
}

namespace names {

NameMap plain() { return {.family = "plain"}; }

}  // namespace names

}  // namespace zero
