// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/special_names.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "weights/model_files.h"

namespace zero {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Kind = SpecialNames::Kind;

constexpr const char* kParts[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

bool is_usual(std::string_view part) { return std::ranges::find(kParts, part) != std::end(kParts); }

/// A special token: a text, or an object with a field "content". Its content is empty if the field
/// is absent.
AddedToken token_in(JsonFields& fields, std::string_view name) {
  if (!fields.raw(name).is_object()) return {.content = fields.text(name, ""), .special = true};
  JsonFields object = fields.object(name);
  AddedToken token = read_added_token(object, 0);
  token.normalized = object.flag("normalized", false);
  token.special = true;
  return token;
}

void set(SpecialNames& names, JsonFields& fields, const std::string& part,
         const std::string& file) {
  AddedToken token = token_in(fields, part);
  names.names.erase(part);
  if (token.content.empty()) return;
  names.names.emplace(part, SpecialNames::Name{token.content, file});
  names.described.insert_or_assign(token.content,
                                   SpecialNames::Named{.token = token, .file = file});
}

/// Those of the list `field` of a file whose fields are `fields`.
void add_additional(SpecialNames& names, JsonFields& fields, const char* field,
                    const std::string& file) {
  std::set<std::string> known(names.additional.begin(), names.additional.end());
  const std::vector<std::string> before = names.additional;
  std::vector<std::string> list;
  for (const json& each : fields.raw(field)) {
    JsonFields one(json::object({{"token", each}}), fields.place(field), "");
    const AddedToken token = token_in(one, "token");
    if (token.content.empty()) continue;
    list.push_back(token.content);
    if (!known.insert(token.content).second) continue;
    names.additional.push_back(token.content);
    names.described.insert_or_assign(
        token.content, SpecialNames::Named{.token = token, .file = file, .part = field});
  }
  names.merged |= !list.empty() && !before.empty() && list != before;
}

/// Those of the object `field`, by their parts.
void add_named(SpecialNames& names, JsonFields& fields, const char* field,
               const std::string& file) {
  JsonFields named = fields.object(field);
  for (const auto& [part, value] : fields.raw(field).items()) set(names, named, part, file);
}

/// Adds those of a file, which replace those that are there; null takes a part's token away.
void add(SpecialNames& names, JsonFields& fields, const std::string& file) {
  for (const char* part : kParts) {
    if (fields.lists(part)) set(names, fields, part, file);
  }
  constexpr const char* kAdditional = "additional_special_tokens";
  constexpr const char* kExtra = "extra_special_tokens";
  const json& additional = fields.raw(kAdditional);
  ZERO_CHECK(additional.is_null() || additional.is_array(),
             "{}: found {}, expected a list of tokens", fields.place(kAdditional),
             additional.dump());
  add_additional(names, fields, kAdditional, file);
  add_named(names, fields, "model_specific_special_tokens", file);  // of transformers 5
  const json& extra = fields.raw(kExtra);
  if (extra.is_object()) return add_named(names, fields, kExtra, file);
  ZERO_CHECK(extra.is_null() || extra.is_array(),
             "{}: found {}, expected an object of tokens by their names, or a list of tokens",
             fields.place(kExtra), extra.dump());
  add_additional(names, fields, kExtra, file);  // as transformers 5 writes them
}

/// Why the next ids are not certain; empty if they are.
std::string doubt(const std::vector<SpecialNames::Named>& next, const SpecialNames& special,
                  const ListedTokens& listed) {
  if (std::ranges::find(listed.taken, false) != listed.taken.end()) {
    return "its ids have gaps, so that the next one is not certain";
  }
  const auto named = std::ranges::count(next, Kind::named, &SpecialNames::Named::kind);
  const bool has_list =
      std::ranges::find(next, Kind::additional, &SpecialNames::Named::kind) != next.end();
  if (named > 1 || (named == 1 && has_list)) {
    return "others have no id either, and versions of transformers number them in other orders";
  }
  if (has_list && special.merged) {
    return "it is in one of several lists, of which versions of transformers take others";
  }
  return "";
}

}  // namespace

std::string_view SpecialNames::of(std::string_view part) const {
  const auto found = names.find(part);
  return found != names.end() ? std::string_view(found->second.content) : "";
}

std::vector<SpecialNames::Named> SpecialNames::in_order() const {
  std::vector<Named> all;
  std::set<std::string> seen;
  const auto add = [&](const std::string& content, std::string_view part, Kind kind) {
    const auto found = described.find(content);
    if (found == described.end() || !seen.insert(content).second) return;
    Named& one = all.emplace_back(found->second);
    one.kind = kind;
    if (!part.empty()) one.part = part;
  };
  for (const char* part : kParts) add(std::string(of(part)), part, Kind::part);
  for (const auto& [part, name] : names) {
    if (!is_usual(part)) add(name.content, part, Kind::named);
  }
  for (const std::string& content : additional) add(content, "", Kind::additional);
  return all;
}

std::vector<std::string> SpecialNames::contents() const {
  std::vector<std::string> all = additional;
  for (const auto& [part, name] : names) all.push_back(name.content);
  return all;
}

SpecialNames read_special_names(const std::string& folder, JsonFields& config) {
  SpecialNames names;
  add(names, config, (fs::path(folder) / "tokenizer_config.json").string());
  const std::string map = (fs::path(folder) / "special_tokens_map.json").string();
  if (!config.lists("added_tokens_decoder") && fs::is_regular_file(map)) {
    JsonFields fields = JsonFields::parse(map, read_model_text(map));
    add(names, fields, map);
  }
  return names;
}

std::vector<AddedToken> number_unlisted(const SpecialNames& special, const ListedTokens& listed) {
  std::vector<AddedToken> tokens;
  std::vector<SpecialNames::Named> next;  // those without an id
  for (SpecialNames::Named& each : special.in_order()) {
    if (listed.found.contains(each.token.content)) continue;
    if (const auto id = listed.id(each.token.content)) {
      if (each.kind == Kind::part) continue;  // a word
      each.token.id = *id;
      tokens.push_back(std::move(each.token));
    } else {
      if (each.part == "eos_token") return {};  // refused by its name
      next.push_back(std::move(each));
    }
  }
  const auto first = std::ranges::find_if(
      next, [](const SpecialNames::Named& each) { return each.kind != Kind::part; });
  if (first == next.end()) return tokens;
  const std::string why = doubt(next, special, listed);
  ZERO_CHECK(why.empty(),
             "{}: {}: found \"{}\", which the tokenizer does not list: {}; list it with its id "
             "among the added_tokens of its file, with \"special\": true",
             first->file, first->part, printable_line(first->token.content), why);
  auto id = static_cast<std::uint32_t>(listed.taken.size());
  for (SpecialNames::Named& each : next) {
    ZERO_CHECK(id < kMostTokens, "{}: {}: expected ids below {}", each.file, each.part,
               kMostTokens);
    each.token.id = id++;
    tokens.push_back(std::move(each.token));
  }
  return tokens;
}

}  // namespace zero
