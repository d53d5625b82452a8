// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/hf/index.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/json_tree.h"
#include "base/printable.h"

namespace zero {
namespace {

using nlohmann::json;

void check_plain_name(std::string_view file, std::string_view key, std::string_view name) {
  ZERO_CHECK(
      is_plain_name(name),
      "{}: {}: found \"{}\", expected the plain name of a file in the same folder; correct the "
      "name, and trust the weights only where their source is known",
      file, key, printable_line(name));
}

}  // namespace

bool is_plain_name(std::string_view name) {
  using namespace std::string_view_literals;
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of("/\\\0"sv) == std::string_view::npos;
}

// {"weight_map": {tensor: file of the same folder}}
std::vector<std::string> files_of_index(const std::string& index, std::string_view text) {
  const std::optional<json> tree = parse_json_tree(text);
  ZERO_CHECK(tree, "{}: is not JSON; expected an index of safetensors files", index);
  const json map = tree->is_object() ? tree->value("weight_map", json()) : json();
  ZERO_CHECK(map.is_object() && !map.empty(),
             "{}: found no object \"weight_map\", expected the file of each tensor in it", index);
  std::set<std::string> files;
  for (const auto& [tensor, file] : map.items()) {
    const std::string key = fmt::format("weight_map.{}", printable_line(tensor));
    ZERO_CHECK(file.is_string(), "{}: {}: found {}, expected the name of a file", index, key,
               printable_line(file.dump()));
    const auto name = file.get<std::string>();
    check_plain_name(index, key, name);
    files.insert(name);
  }
  return {files.begin(), files.end()};
}

}  // namespace zero
