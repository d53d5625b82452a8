// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/text/special_names.h"

#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "checkpoint/model_files.h"

namespace zero {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kParts[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

/// A token's content: a text, or an object with a field "content". Empty if the field is absent.
std::string content_in(HfFields& fields, std::string_view name) {
  if (fields.raw(name).is_object()) return fields.object(name).text("content");
  return fields.text(name, "");
}

void set(SpecialNames& names, const std::string& part, SpecialNames::Name name) {
  names.names.erase(part);
  if (!name.content.empty()) names.names.emplace(part, std::move(name));
}

void add_additional(SpecialNames& names, const json& all, const std::string& place) {
  std::set<std::string> known(names.additional.begin(), names.additional.end());
  for (const json& token : all) {
    HfFields one(json::object({{"token", token}}), place, "");
    const std::string content = content_in(one, "token");
    if (!content.empty() && known.insert(content).second) names.additional.push_back(content);
  }
}

/// What the file says counts before what is there, also that a part has no token (null).
void add(SpecialNames& names, HfFields& fields, const std::string& file) {
  for (const char* part : kParts) {
    if (fields.lists(part)) set(names, part, {content_in(fields, part), file});
  }
  constexpr const char* kAdditional = "additional_special_tokens";
  constexpr const char* kExtra = "extra_special_tokens";
  const json& additional = fields.raw(kAdditional);
  ZERO_CHECK(additional.is_null() || additional.is_array(),
             "{}: found {}, expected a list of tokens", fields.place(kAdditional),
             additional.dump());
  add_additional(names, additional, fields.place(kAdditional));
  const json& extra = fields.raw(kExtra);
  if (extra.is_object()) {
    HfFields named = fields.object(kExtra);
    for (const auto& [part, value] : extra.items()) {
      set(names, part, {content_in(named, part), file});
    }
    return;
  }
  ZERO_CHECK(extra.is_null() || extra.is_array(),
             "{}: found {}, expected an object of tokens by their names, or a list of tokens",
             fields.place(kExtra), extra.dump());
  add_additional(names, extra, fields.place(kExtra));  // as transformers 5 writes them
}

}  // namespace

std::string_view SpecialNames::of(std::string_view part) const {
  const auto found = names.find(part);
  return found != names.end() ? std::string_view(found->second.content) : "";
}

std::vector<std::string> SpecialNames::contents() const {
  std::vector<std::string> all = additional;
  for (const auto& [part, name] : names) all.push_back(name.content);
  return all;
}

SpecialNames read_special_names(const std::string& folder, HfFields& config) {
  SpecialNames names;
  add(names, config, (fs::path(folder) / "tokenizer_config.json").string());
  const std::string map = (fs::path(folder) / "special_tokens_map.json").string();
  if (!config.lists("added_tokens_decoder") && fs::is_regular_file(map)) {
    HfFields fields = HfFields::parse(map, read_model_text(map));
    add(names, fields, map);
  }
  return names;
}

}  // namespace zero
