// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/message_text.h"
#include "files/file_system.h"

namespace zero {

/// Element types of safetensors files, in the order of the format: files list tensors of later
/// types first, so that every tensor is aligned to its elements.
enum class FileType : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};
inline constexpr int kFileTypes = 17;

/// "BOOL", "U8", ..., as headers spell them.
std::string_view name_of(FileType type);
/// Bytes of one element.
std::int64_t size_of(FileType type);
/// The inverse of name_of; empty for anything else.
std::optional<FileType> file_type_from_name(std::string_view name);

/// Elements of a shape without negative dimensions; empty if they do not fit 63 bits.
std::optional<std::int64_t> element_count(std::span<const std::int64_t> shape);

/// One tensor of a file.
struct FileTensor {
  std::string name;
  FileType type = FileType::f32;
  std::vector<std::int64_t> shape;  ///< empty: a scalar
  std::int64_t begin = 0;           ///< first byte, from the start of the data section
  std::int64_t end = 0;             ///< one past the last byte

  std::int64_t count() const { return (end - begin) / size_of(type); }
};

/// The header of a safetensors file:
///     8 bytes: header length, little-endian | header: JSON, padded with spaces | data section
struct FileHeader {
  static constexpr std::int64_t kLengthBytes = 8;
  static constexpr std::int64_t kLargest = 100'000'000;  ///< bytes of JSON that readers accept

  std::vector<FileTensor> tensors;              ///< in the order of their bytes
  std::map<std::string, std::string> metadata;  ///< free text
  std::int64_t data_begin = 0;                  ///< file offset of the data section
};

/// Reads the JSON text of a header: tensors in the order of the text, and metadata. Checks only the
/// form (JSON, the fields of each tensor and their types, repeated names), not the byte ranges.
/// Throws zero::Error naming file, tensor and offset.
FileHeader read_header_text(const std::string& file, std::string_view json);

/// Parses and checks the JSON text of a header; `file_size` is the size of the whole file, `file`
/// its name for messages. Throws zero::Error naming file, tensor and offset unless the tensors fill
/// the data section exactly: no overlap, no gap, nothing after the last, each as long as its shape
/// and type imply.
FileHeader parse_header(const std::string& file, std::string_view json, std::int64_t file_size);

/// Reads and checks the header of an open safetensors file, likewise.
FileHeader read_header(files::InputFile& file);

/// Lays out a file: orders the tensors (type, then name) and assigns each its bytes. Ignores
/// `begin` and `end` of `tensors`. Deterministic in its arguments. Throws zero::Error on a repeated
/// or reserved name, sizes that overflow, or a header of more than kLargest bytes.
FileHeader lay_out(std::vector<FileTensor> tensors, std::map<std::string, std::string> metadata);

/// The first data_begin bytes of a file laid out by lay_out: header length and padded JSON.
std::string header_bytes(const FileHeader& header);

}  // namespace zero
