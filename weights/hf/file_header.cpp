// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/hf/file_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/message_text.h"

namespace zero {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::string_view kMetadataName = "__metadata__";

struct TypeRow {
  std::string_view name;
  std::int64_t size;
};
constexpr std::array<TypeRow, kFileTypes> kTypes = {{{"BOOL", 1},
                                                     {"U8", 1},
                                                     {"I8", 1},
                                                     {"F8_E5M2", 1},
                                                     {"F8_E4M3", 1},
                                                     {"F8_E8M0", 1},
                                                     {"I16", 2},
                                                     {"U16", 2},
                                                     {"F16", 2},
                                                     {"BF16", 2},
                                                     {"I32", 4},
                                                     {"U32", 4},
                                                     {"F32", 4},
                                                     {"C64", 8},
                                                     {"F64", 8},
                                                     {"I64", 8},
                                                     {"U64", 8}}};

/// Throws unless the bytes of `tensor` lie in the file and their number fits its shape.
void check_tensor(const std::string& file, const FileTensor& tensor, std::int64_t data_begin,
                  std::int64_t file_size) {
  const auto fits = [&](std::int64_t offset) { return offset <= file_size - data_begin; };
  ZERO_CHECK(tensor.begin <= tensor.end,
             "{}: tensor \"{}\": data_offsets [{}, {}] end before they begin", file,
             printable_line(tensor.name), tensor.begin, tensor.end);
  ZERO_CHECK(fits(tensor.end),
             "{}: tensor \"{}\": data_offsets [{}, {}] reach beyond the end of the file: {} bytes "
             "of data begin at offset {}, the file has {}",
             file, printable_line(tensor.name), tensor.begin, tensor.end, file_size - data_begin,
             data_begin, file_size);
  const std::optional<std::int64_t> count = element_count(tensor.shape);
  std::int64_t bytes = 0;
  ZERO_CHECK(count && !__builtin_mul_overflow(*count, size_of(tensor.type), &bytes),
             "{}: tensor \"{}\" (offset {}): shape {} x {} does not fit 63 bits", file,
             printable_line(tensor.name), data_begin + tensor.begin, shape_text(tensor.shape),
             name_of(tensor.type));
  ZERO_CHECK(bytes == tensor.end - tensor.begin,
             "{}: tensor \"{}\" (offset {}): data_offsets [{}, {}] span {} bytes, expected {} for "
             "shape {} of {}",
             file, printable_line(tensor.name), data_begin + tensor.begin, tensor.begin, tensor.end,
             tensor.end - tensor.begin, bytes, shape_text(tensor.shape), name_of(tensor.type));
}

/// Throws unless the tensors, sorted by their bytes, fill the data section exactly.
void check_filled(const std::string& file, const FileHeader& header, std::int64_t file_size) {
  std::int64_t end = 0;
  std::string before = "the header";
  for (const FileTensor& tensor : header.tensors) {
    ZERO_CHECK(tensor.begin >= end,
               "{}: tensor \"{}\": begins at offset {}, inside {}, which ends at {}; tensors must "
               "not overlap",
               file, printable_line(tensor.name), header.data_begin + tensor.begin, before,
               header.data_begin + end);
    ZERO_CHECK(tensor.begin <= end,
               "{}: tensor \"{}\": begins at offset {}, expected {}, where {} ends: the format "
               "allows no hole",
               file, printable_line(tensor.name), header.data_begin + tensor.begin,
               header.data_begin + end, before);
    end = tensor.end;
    before = fmt::format("tensor \"{}\"", printable_line(tensor.name));
  }
  ZERO_CHECK(header.data_begin + end == file_size,
             "{}: {} bytes from offset {}, behind {}, belong to no tensor; the format allows none",
             file, file_size - header.data_begin - end, header.data_begin + end, before);
}

std::string json_string(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    fail("a tensor name or metadata text for a safetensors file is not UTF-8");
  }
}

std::string json_text(const FileHeader& header) {
  std::string json = "{";
  const auto separate = [&] {
    if (json.size() > 1) json += ',';
  };
  if (!header.metadata.empty()) {
    json += fmt::format("\"{}\":{{", kMetadataName);
    for (bool first = true; const auto& [key, value] : header.metadata) {
      json += fmt::format("{}{}:{}", std::exchange(first, false) ? "" : ",", json_string(key),
                          json_string(value));
    }
    json += '}';
  }
  for (const FileTensor& tensor : header.tensors) {
    separate();
    json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        json_string(tensor.name), name_of(tensor.type),
                        fmt::join(tensor.shape, ","), tensor.begin, tensor.end);
  }
  json += '}';
  json.resize(static_cast<std::size_t>(div_ceil(std::ssize(json), 8) * 8), ' ');
  return json;
}

}  // namespace

std::string_view name_of(FileType type) { return kTypes.at(static_cast<std::size_t>(type)).name; }
std::int64_t size_of(FileType type) { return kTypes.at(static_cast<std::size_t>(type)).size; }

std::optional<FileType> file_type_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<FileType>(i);
  }
  return std::nullopt;
}

std::optional<std::int64_t> element_count(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t dimension : shape) {
    if (__builtin_mul_overflow(count, dimension, &count)) return std::nullopt;
  }
  return count;
}

FileHeader parse_header(const std::string& file, std::string_view json, std::int64_t file_size) {
  FileHeader header = read_header_text(file, json);
  header.data_begin = FileHeader::kLengthBytes + std::ssize(json);
  for (const FileTensor& tensor : header.tensors) {
    check_tensor(file, tensor, header.data_begin, file_size);
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const FileTensor& a, const FileTensor& b) {
                     return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
                   });
  check_filled(file, header, file_size);
  return header;
}

FileHeader lay_out(std::vector<FileTensor> tensors, std::map<std::string, std::string> metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const FileTensor& a, const FileTensor& b) {
    return std::tie(b.type, a.name) < std::tie(a.type, b.name);
  });
  std::vector<std::string_view> names;
  std::int64_t end = 0;
  for (FileTensor& tensor : tensors) {
    ZERO_CHECK(tensor.name != kMetadataName, "a tensor cannot be named {}: the format reserves it",
               kMetadataName);
    names.push_back(tensor.name);
    const bool negative = std::any_of(tensor.shape.begin(), tensor.shape.end(),
                                      [](std::int64_t dimension) { return dimension < 0; });
    const std::optional<std::int64_t> count = element_count(tensor.shape);
    std::int64_t bytes = 0;
    tensor.begin = end;
    ZERO_CHECK(
        !negative && count && !__builtin_mul_overflow(*count, size_of(tensor.type), &bytes) &&
            !__builtin_add_overflow(end, bytes, &end),
        "tensor \"{}\": shape {} of {} cannot be laid out behind {} bytes",
        printable_line(tensor.name), shape_text(tensor.shape), name_of(tensor.type), tensor.begin);
    tensor.end = end;
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  ZERO_CHECK(twice == names.end(), "tensor \"{}\" is listed twice for one file",
             printable_line(*twice));

  FileHeader header{std::move(tensors), std::move(metadata), 0};
  const std::int64_t bytes = std::ssize(json_text(header));
  ZERO_CHECK(
      bytes <= FileHeader::kLargest,
      "the header of {} tensors takes {} bytes, over the limit of {}: readers would refuse it",
      header.tensors.size(), bytes, FileHeader::kLargest);
  header.data_begin = FileHeader::kLengthBytes + bytes;
  return header;
}

std::string header_bytes(const FileHeader& header) {
  const std::string json = json_text(header);
  const auto length = static_cast<std::uint64_t>(json.size());
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + json;
}

}  // namespace zero
