// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/hf/safetensors.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json_tree.h"
#include "base/message_text.h"

namespace zero {
namespace {

using nlohmann::json;

/// Throws unless `bytes` bytes from element `first` on are whole elements inside `tensor`.
void check_range(const std::string& file, const FileTensor& tensor, std::int64_t first,
                 std::int64_t bytes) {
  const std::int64_t size = size_of(tensor.type);
  ZERO_CHECK(bytes % size == 0, "{}: tensor \"{}\": {} bytes are not whole elements of {}", file,
             printable_line(tensor.name), bytes, name_of(tensor.type));
  ZERO_CHECK(first >= 0 && first <= tensor.count() - bytes / size,
             "{}: tensor \"{}\": {} elements from {} on are outside its {} elements", file,
             printable_line(tensor.name), bytes / size, first, tensor.count());
}

void check_plain_name(std::string_view file, std::string_view key, std::string_view name) {
  ZERO_CHECK(
      is_plain_name(name),
      "{}: {}: found \"{}\", expected the plain name of a file in the same folder; correct the "
      "name, and trust the weights only where their source is known",
      file, key, printable_line(name));
}

}  // namespace

SafetensorsReader::SafetensorsReader(std::unique_ptr<files::InputFile> file)
    : file_(std::move(file)), header_(read_header(*file_)) {
  for (const FileTensor& tensor : header_.tensors) by_name_.emplace(tensor.name, &tensor);
}

SafetensorsReader::SafetensorsReader(const std::string& path)
    : SafetensorsReader(files::disk().open_read(path)) {}

const FileTensor* SafetensorsReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

std::int64_t SafetensorsReader::offset_of(const FileTensor& tensor, std::int64_t element) const {
  return header_.data_begin + tensor.begin + element * size_of(tensor.type);
}

void SafetensorsReader::read(const FileTensor& tensor, std::int64_t first,
                             std::span<std::byte> out) const {
  check_range(path(), tensor, first, std::ssize(out));
  file_->read(offset_of(tensor, first), out);
}

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
