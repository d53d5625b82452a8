// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint_index.h"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/json_tree.h"
#include "base/message_text.h"
#include "weights/damaged_checkpoint.h"
#include "weights/file_blocks.h"
#include "weights/hf/file_header.h"
#include "weights/hf/safetensors.h"

namespace zero {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kSumDigits = 8;  // of a block's checksum, in base 16
constexpr std::string_view kTensorsEnd = ".safetensors";

/// JSON of a value, on one line.
std::string json_text(const ordered_json& value) {
  try {
    return value.dump();
  } catch (const ordered_json::type_error&) {
    fail("a text for a checkpoint's index.json is not UTF-8");
  }
}

std::string unchecked_text(const CheckpointIndex& index) {
  std::string text =
      fmt::format("{{\n\"format\": {},\n\"step\": {},\n\"steps_skipped\": {},\n\"tensors\": [",
                  kCheckpointFormat, index.step, index.steps_skipped);
  const char* separator = "\n";
  for (const CheckpointIndex::Tensor& tensor : index.tensors) {
    text += fmt::format(
        "{}{{\"name\":{},\"shape\":[{}],\"kind\":\"{}\",\"dtype\":\"F32\",\"file\":{},"
        "\"offset\":{}}}",
        std::exchange(separator, ",\n"), json_text(tensor.name), fmt::join(tensor.shape, ","),
        name_of(tensor.kind), json_text(index.files.at(tensor.file).name), tensor.offset);
  }
  text += "\n],\n\"files\": [";
  separator = "\n";
  for (const CheckpointIndex::File& file : index.files) {
    text += fmt::format("{}{{\"name\":{},\"bytes\":{},\"crc32c\":\"{:08x}\"}}",
                        std::exchange(separator, ",\n"), json_text(file.name), file.bytes,
                        fmt::join(file.crcs, ""));
  }
  return text + fmt::format("\n],\n\"extra\": {}\n}}\n", json_text(index.extra));
}

std::vector<std::uint32_t> read_sums(JsonFields& fields, std::int64_t bytes) {
  const std::string digits = fields.text("crc32c");
  const auto blocks = static_cast<std::size_t>(blocks_of(bytes));
  if (digits.size() != blocks * kSumDigits) {
    fields.refuse("crc32c", "found {} digits, expected {} for each of {} blocks", digits.size(),
                  kSumDigits, blocks);
  }
  if (digits.find_first_not_of("0123456789abcdef") != digits.npos) {
    fields.refuse("crc32c", "found other characters than digits of base 16");
  }
  std::vector<std::uint32_t> sums;
  for (std::size_t i = 0; i < blocks; ++i) {
    sums.push_back(static_cast<std::uint32_t>(
        std::stoul(digits.substr(i * kSumDigits, kSumDigits), nullptr, 16)));
  }
  return sums;
}

CheckpointIndex::File read_file(JsonFields& fields) {
  const std::string name = fields.text("name");
  const std::size_t slash = name.find('/');
  const std::string_view folder = std::string_view(name).substr(0, slash);
  // Small files are the weights' alone.
  const bool known = folder == "weights" || (folder == "moments" && name.ends_with(kTensorsEnd));
  if (slash == name.npos || !known || !is_plain_name(std::string_view(name).substr(slash + 1))) {
    fields.refuse("name", "found \"{}\", expected weights/* or moments/*{}", printable_line(name),
                  kTensorsEnd);
  }
  const std::int64_t bytes = fields.count("bytes");
  return {name, bytes, read_sums(fields, bytes)};
}

StateKind read_kind(JsonFields& fields) {
  const std::string name = fields.text("kind");
  for (const StateKind kind : kStateKinds) {
    if (name_of(kind) == name) return kind;
  }
  fields.refuse("kind", "found \"{}\", expected parameter, moment0 or moment1",
                printable_line(name));
}

/// The end of `tensor` in its file; refused if the tensor does not lie in the file.
std::int64_t end_of(JsonFields& fields, const CheckpointIndex::Tensor& tensor,
                    const CheckpointIndex::File& file) {
  const std::optional<std::int64_t> count = element_count(tensor.shape);
  std::int64_t end = 0;
  const bool fits = count && !__builtin_mul_overflow(*count, kElementBytes, &end) &&
                    !__builtin_add_overflow(end, tensor.offset, &end);
  if (!fits) fields.refuse("shape", "found {}, too large", shape_text(tensor.shape));
  if (end > file.bytes) {
    fields.refuse("offset", "found {}, from where shape {} reaches offset {} of {}, which has {}",
                  tensor.offset, shape_text(tensor.shape), end, file.name, file.bytes);
  }
  return end;
}

/// Reads the tensors of an index whose files have been read.
class TensorList {
 public:
  explicit TensorList(CheckpointIndex& index) : index_(index) {}

  void add(JsonFields& fields) {
    CheckpointIndex::Tensor tensor{.name = fields.text("name"),
                                   .shape = fields.whole_numbers<std::int64_t>("shape"),
                                   .kind = read_kind(fields),
                                   .file = file_of(fields),
                                   .offset = fields.count("offset")};
    if (fields.text("dtype") != "F32") {
      fields.refuse("dtype", "found \"{}\", expected F32", printable_line(fields.text("dtype")));
    }
    if (!names_.emplace(tensor.kind, tensor.name).second) {
      fields.refuse("name", "\"{}\" is the name of an earlier tensor of the kind {}",
                    printable_line(tensor.name), name_of(tensor.kind));
    }
    check_home(fields, tensor);
    const CheckpointIndex::File& file = index_.files[tensor.file];
    if (tensor.offset % kElementBytes != 0) {
      fields.refuse("offset", "found {}, expected a multiple of {}", tensor.offset, kElementBytes);
    }
    const bool behind = tensor.file > file_ || (tensor.file == file_ && tensor.offset >= end_);
    if (!behind) {
      fields.refuse("offset", "found {} of {}, expected the tensor behind {} of {}", tensor.offset,
                    file.name, end_, index_.files[file_].name);
    }
    file_ = tensor.file;
    end_ = end_of(fields, tensor, file);
    index_.tensors.push_back(std::move(tensor));
  }

 private:
  std::size_t file_of(JsonFields& fields) const {
    const std::string name = fields.text("file");
    // Tensors come in the order of files: the search goes on where it last ended.
    for (std::size_t i = 0; i < index_.files.size(); ++i) {
      const std::size_t file = (file_ + i) % index_.files.size();
      if (index_.files[file].name == name) return file;
    }
    fields.refuse("file", "found \"{}\", expected one of the {} files", printable_line(name),
                  index_.files.size());
  }

  /// Parameters lie in the weights, moments in the files of their kind.
  void check_home(JsonFields& fields, const CheckpointIndex::Tensor& tensor) const {
    const std::string start = tensor.kind == StateKind::parameter
                                  ? "weights/"
                                  : fmt::format("moments/{}", name_of(tensor.kind));
    const std::string& file = index_.files[tensor.file].name;
    if (!file.starts_with(start) || !file.ends_with(kTensorsEnd)) {
      fields.refuse("file", "found \"{}\", expected {}*{} for the kind {}", printable_line(file),
                    start, kTensorsEnd, name_of(tensor.kind));
    }
  }

  CheckpointIndex& index_;
  std::set<std::pair<StateKind, std::string>> names_;
  std::size_t file_ = 0;  // of the tensor before
  std::int64_t end_ = 0;  // of the tensor before, in its file
};

void check_format(JsonFields& top) {
  const nlohmann::json& found = top.raw("format");
  if (found.is_null() || found == kCheckpointFormat) return;  // exactly() names a missing one
  top.refuse("format", "found version {}, expected {}; this program reads no other",
             printable_line(found.dump()), kCheckpointFormat);
}

}  // namespace

std::int64_t CheckpointIndex::bytes() const {
  std::int64_t bytes = 0;
  for (const File& file : files) bytes += file.bytes;
  return bytes;
}

std::int64_t CheckpointIndex::Tensor::count() const { return element_count(shape).value_or(0); }

std::string checkpoint_index_text(const CheckpointIndex& index) {
  std::string text = unchecked_text(index);
  parse_checkpoint_index("index.json", text);
  return text;
}

CheckpointIndex parse_checkpoint_index(const std::string& path, std::string_view text) {
  JsonFields top = JsonFields::parse(path, text);
  check_format(top);
  top.exactly({"format", "step", "steps_skipped", "tensors", "files", "extra"});
  CheckpointIndex index{.step = top.count("step"), .steps_skipped = top.count("steps_skipped")};
  if (index.steps_skipped > index.step) {
    top.refuse("steps_skipped", "found {}, expected at most {}, the step", index.steps_skipped,
               index.step);
  }
  std::set<std::string> names;
  for (JsonFields& fields : top.objects("files")) {
    fields.exactly({"name", "bytes", "crc32c"});
    index.files.push_back(read_file(fields));
    const std::string& name = index.files.back().name;
    if (!names.insert(name).second) {
      fields.refuse("name", "\"{}\" is the name of an earlier file", name);
    }
  }
  TensorList tensors(index);
  for (JsonFields& fields : top.objects("tensors")) {
    fields.exactly({"name", "shape", "kind", "dtype", "file", "offset"});
    tensors.add(fields);
  }
  index.extra = std::move(parse_ordered_tree(text)->at("extra"));
  // Also finds fields that are given twice.
  const std::string expected = unchecked_text(index);
  const auto at = std::mismatch(text.begin(), text.end(), expected.begin(), expected.end()).first;
  ZERO_CHECK(text == expected,
             "{}: offset {}: differs from the text that is written for these values", path,
             at - text.begin());
  return index;
}

std::string commit_line(std::string_view index_text) {
  const XXH128_hash_t hash = XXH3_128bits(index_text.data(), index_text.size());
  return fmt::format("zero checkpoint {} {:016x}{:016x}\n", kCheckpointFormat, hash.high64,
                     hash.low64);
}

void check_commit(const std::string& path, std::string_view commit, std::string_view index_text) {
  const std::string expected = commit_line(index_text);
  if (commit == expected) return;
  constexpr std::string_view kStart = "zero checkpoint ";
  const std::string_view rest = commit.substr(std::min(kStart.size(), commit.size()));
  const std::string_view version = rest.substr(0, rest.find(' '));
  const bool is_number = commit.starts_with(kStart) && !version.empty() &&
                         version.find_first_not_of("0123456789") == version.npos;
  if (is_number && version != std::to_string(kCheckpointFormat)) {
    throw UnknownFormat(
        fmt::format("{}: found format version {}, expected {}; this program reads no other", path,
                    printable_line(version), kCheckpointFormat));
  }
  fail(
      "{}: found \"{}\", expected \"{}\" and the line's end, the hash of index.json: one of the "
      "two was changed",
      path, printable_line(commit), expected.substr(0, expected.size() - 1));
}

}  // namespace zero
