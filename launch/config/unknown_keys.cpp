// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Keys that there are not: what their users may have meant, and how --set asks for that.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "launch/config/answers.h"
#include "launch/config/checked_value.h"
#include "launch/config/configuration_reader.h"
#include "launch/config/similar_names.h"

namespace zero {

using nlohmann::json;

namespace {

/// Whether the tree has a value for an option's path, or another one where its section should be.
bool holds(const json& tree, const std::string& path) {
  if (!tree.is_object()) return !tree.is_null();
  const std::size_t dot = path.find('.');
  const auto member = tree.find(path.substr(0, dot));
  if (member == tree.end()) return false;
  return dot == std::string::npos || holds(*member, path.substr(dot + 1));
}

/// Whether a section has keys of this engine alone, whose names say other things elsewhere.
bool is_own(const std::string& path) {
  return std::ranges::any_of(std::array{"model.", "data.", "run.", "mesh."},
                             [&](const char* own) { return path.starts_with(own); });
}

/// The only key or section elsewhere that ends as `path` does, in as many names as possible:
/// "aio" for "zero_optimization.aio". Empty if there is none, or several.
std::string place_elsewhere(const std::string& path) {
  constexpr int kMostNames = 8;  // of a path: no key has as many
  if (std::ranges::count(path, '.') > kMostNames) return "";
  for (std::size_t begin = 0;; begin = path.find('.', begin) + 1) {
    const std::string end = canonical_path(path.substr(begin));
    const std::string framed = "." + end + ".";
    std::vector<std::string> places;
    for (const Option& option : option_table()) {
      const std::size_t at = ("." + option.path + ".").find(framed);
      if (at == std::string::npos) continue;
      const std::string place = option.path.substr(0, at + end.size());
      if (std::ranges::count(places, place) == 0) places.push_back(place);
    }
    if (!places.empty()) return places.size() == 1 ? places.front() : "";
    if (path.find('.', begin) == std::string::npos) return "";
  }
}

}  // namespace

/// A key that has another name and place here, and perhaps other values.
void ConfigurationReader::called_otherwise(const std::string& path, const KeyValue& here,
                                           const json& value) {
  std::vector<std::string> sets = removal_of(path);
  const bool given = holds(tree_, here.path);
  const std::string set = override_of(here.path, here.value);
  if (!given && fits_option(here)) {
    sets.push_back(set);
    if (in_file(path)) take(*find_option(here.path), here.value);
  }
  throw Refusal(
      fmt::format("{}: {} = {} has no effect under this name: give {}{}", source_of(path), path,
                  shown_value(value), given || here.value == value ? here.path : set,
                  given ? ", which is given too, alone" : ""),
      answers_in_file(path, std::move(sets)));
}

/// The keys that ask for `value` at `place`, a key or section: it, or its members, as far as they
/// fit there and the file has no others.
std::vector<KeyValue> ConfigurationReader::moved(const std::string& place,
                                                 const json& value) const {
  if (const Option* const option = find_option(place)) {
    const bool given = holds(tree_, place) || result_.values_.contains(place);
    if (given || !fits_option({place, value})) return {};
    const json checked = checked_value(*option, value, "");
    return is_offered(*option, checked) ? std::vector{KeyValue{place, checked}}
                                        : std::vector<KeyValue>{};
  }
  if (!is_section(place)) return {};
  if (!value.is_object()) {
    const auto meant = member_meant(place, value);
    return meant ? moved(meant->path, meant->value) : std::vector<KeyValue>{};
  }
  std::vector<KeyValue> all;
  for (const auto& [key, member] : value.items()) {
    std::ranges::move(moved(canonical_path(joined_path(place, key)), member),
                      std::back_inserter(all));
  }
  return all;
}

void ConfigurationReader::unknown(const std::string& path, const json& value) {
  const auto here = meant_by(path.substr(path.rfind('.') + 1), value);
  if (here) called_otherwise(path, *here, value);
  const Meant meant = meant_key(path);
  const bool out_of_section =
      path.find('.') != std::string::npos && meant.path.find('.') == std::string::npos;
  const std::string described = meant.path.empty()
                                    ? described_keys(path)
                                    : fmt::format("; did you mean \"{}\"{}?", meant.path,
                                                  out_of_section ? " at the top level" : "");
  std::vector<std::string> sets = removal_of(path);
  std::string advice =
      described.ends_with('?') ? " Correct it or leave it out" : "; correct it or leave it out";
  if (sets.empty()) advice += fmt::format("; no option can name it: edit {}", source_);
  if (meant.moves && in_file(path) && !sets.empty()) {
    for (const auto& [key, wanted] : moved(meant.path, value)) {
      const std::vector<std::string> answer = answer_of(key, wanted);
      if (answer.empty()) continue;
      take(*find_option(key), wanted);
      sets.push_back(answer.front());
    }
  }
  throw Refusal(fmt::format("{}: unknown key \"{}\"{}{}", source_of(path), path, described,
                            in_file(path) ? advice : ""),
                answers_in_file(path, std::move(sets)));
}

/// What the user may have meant by an unknown key.
ConfigurationReader::Meant ConfigurationReader::meant_key(const std::string& path) {
  constexpr int kSure = 8;  // a misspelt key is not misspelt by more of it
  const std::string elsewhere = place_elsewhere(path);
  const bool is_key = find_option(elsewhere) != nullptr;
  if (!elsewhere.empty() && !(is_key && is_own(elsewhere))) return {elsewhere, true};
  const std::size_t dot = path.rfind('.');
  const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
  const std::string key = dot == std::string::npos ? path : path.substr(dot + 1);
  if (is_section(section)) {
    const std::vector<std::string> keys = keys_of_section(section);
    const std::string near = nearest_name(key, keys);
    if (!near.empty()) return {joined_path(section, near), near == nearest_name(key, keys, kSure)};
  }
  std::vector<std::string> last_names;
  for (const Option& option : option_table()) {
    last_names.push_back(option.path.substr(option.path.rfind('.') + 1));
  }
  const std::string near = nearest_name(key, last_names, kSure);
  if (near.empty()) return {};
  const auto index = std::find(last_names.begin(), last_names.end(), near) - last_names.begin();
  return {option_table()[static_cast<std::size_t>(index)].path, false};
}

/// What there is in the section of a key, or at the top level.
std::string ConfigurationReader::described_keys(const std::string& path) {
  constexpr std::size_t kMostShown = 24;
  const std::size_t dot = path.rfind('.');
  std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
  if (!is_section(section)) section = "";
  const std::vector<std::string> keys = keys_of_section(section);
  const std::string place = section.empty() ? "the top level" : section;
  if (keys.size() > kMostShown) {
    return fmt::format("; zero_train --help lists the {} keys of {}", keys.size(), place);
  }
  return fmt::format("; {} has the keys {}", place, fmt::join(keys, ", "));
}

}  // namespace zero
