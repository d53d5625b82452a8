// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/refusals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/message_text.h"
#include "launch/config/configuration.h"

namespace zero {

namespace {

/// `text` as one line, of any length, that cannot pass for another: keys and values in it may have
/// any characters.
std::string one_line(const std::string& text) { return printable_line(text, text.size()); }

}  // namespace

/// What follows --set: each key once, with the last value that an answer gives it.
std::string Refusals::answer() const {
  std::vector<std::string> all;
  const auto key_of = [](const std::string& set) {
    const std::size_t begin = set.starts_with('\'') ? 1 : 0;  // a word in quotes
    return set.substr(begin, set.find('=') - begin);
  };
  for (const Item& item : items_) {
    for (const std::string& set : item.sets) {
      if (std::ranges::count(all, set) > 0) continue;
      std::erase_if(all, [&](const std::string& other) { return key_of(other) == key_of(set); });
      all.push_back(set);
    }
  }
  return fmt::format("{}", fmt::join(all, " "));
}

void Refusals::raise(const Configuration& values) const {
  if (items_.empty()) return;
  const std::string sets = answer();
  if (items_.size() == 1) {
    const std::string& message = items_.front().message;
    throw Error(one_line(values.as_written(sets.empty() ? message : message + ": --set " + sets)));
  }
  const std::string prefix = values.source() + ": ";
  std::string text = one_line(fmt::format("{}: {} refusals:", values.source(), items_.size()));
  for (const Item& item : items_) {
    const std::string& message = item.message;
    text += "\n  - ";
    text += one_line(
        values.as_written(message.starts_with(prefix) ? message.substr(prefix.size()) : message));
  }
  const auto answered =
      std::ranges::count_if(items_, [](const Item& i) { return !i.sets.empty(); });
  if (answered > 0) {
    const bool all = static_cast<std::size_t>(answered) == items_.size();
    text += fmt::format("\n  An answer to {}, in which to put your own values: --set {}",
                        all ? "all of them" : fmt::format("{} of them", answered),
                        one_line(values.as_written(sets)));
  }
  throw Error(text);
}

}  // namespace zero
