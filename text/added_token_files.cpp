// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/added_token_files.h"

#include <charconv>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json_tree.h"
#include "base/printable.h"
#include "weights/model_files.h"

namespace zero {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::uint32_t checked_id(const json& id, const std::string& place) {
  ZERO_CHECK(id.is_number_unsigned() && id.get<std::uint64_t>() < kMostTokens,
             "{}: found {}, expected an id below {}", place, id.dump(), kMostTokens);
  return id.get<std::uint32_t>();
}

std::vector<AddedToken> tokens_of_decoder(JsonFields& config) {
  std::vector<AddedToken> tokens;
  JsonFields decoder = config.object("added_tokens_decoder");
  for (const auto& [key, value] : config.raw("added_tokens_decoder").items()) {
    std::uint32_t id = 0;
    const char* end = key.data() + key.size();
    const auto parsed = std::from_chars(key.data(), end, id);
    ZERO_CHECK(parsed.ec == std::errc() && parsed.ptr == end && id < kMostTokens,
               "{}: expected an id below {}", decoder.place(key), kMostTokens);
    JsonFields token = decoder.object(key);
    tokens.push_back(read_added_token(token, id));
  }
  return tokens;
}

JsonFields parse_file(const fs::path& path) {
  return JsonFields::parse(path.string(), read_model_text(path.string()));
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const std::string& folder, JsonFields& config,
                                          const SpecialNames& special) {
  if (config.has("added_tokens_decoder")) return tokens_of_decoder(config);
  const fs::path path = fs::path(folder) / "added_tokens.json";
  if (!fs::is_regular_file(path)) return {};
  const std::vector<std::string> contents = special.contents();
  const std::set<std::string> names(contents.begin(), contents.end());
  std::vector<AddedToken> tokens;
  const std::optional<json> file = parse_json_tree(read_model_text(path.string()));
  ZERO_CHECK(file && file->is_object(), "{}: is not a JSON object of tokens with ids",
             path.string());
  for (const auto& [content, id] : file->items()) {
    tokens.push_back(
        {.content = content,
         .id = checked_id(id, fmt::format("{}: {}", path.string(), printable_line(content))),
         .special = names.contains(content)});
  }
  return tokens;
}

std::vector<AddedToken> read_added_tokens_of_json(const std::string& path) {
  std::vector<AddedToken> tokens;
  if (!fs::is_regular_file(path)) return tokens;
  JsonFields file = parse_file(path);
  for (const json& value : file.raw("added_tokens")) {
    ZERO_CHECK(value.is_object(), "{}: found {}, expected objects", file.place("added_tokens"),
               value.dump());
    JsonFields fields(value, path, "added_tokens.");
    const std::uint32_t id = checked_id(fields.raw("id"), fields.place("id"));
    tokens.push_back(read_added_token(fields, id));
  }
  return tokens;
}

}  // namespace zero
