// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <cstring>
#include <utility>

#include "base/error.h"

namespace zero {
namespace {

/// Throws unless `bytes` bytes from element `first` on are whole elements inside `tensor`.
void check_range(const std::string& file, const FileTensor& tensor, std::int64_t first,
                 std::int64_t bytes) {
  const std::int64_t size = size_of(tensor.type);
  ZERO_CHECK(bytes % size == 0, "{}: tensor \"{}\": {} bytes are not whole elements of {}", file,
             tensor.name, bytes, name_of(tensor.type));
  ZERO_CHECK(first >= 0 && first <= tensor.count() - bytes / size,
             "{}: tensor \"{}\": {} elements from {} on are outside its {} elements", file,
             tensor.name, bytes / size, first, tensor.count());
}

FileHeader read_header(const File& file) {
  const std::int64_t size = file.size();
  ZERO_CHECK(size >= FileHeader::kLengthBytes,
             "{}: is no safetensors file: it has {} bytes, expected at least {} that tell the "
             "header's length",
             file.path(), size, FileHeader::kLengthBytes);
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  ZERO_CHECK(length <= static_cast<std::uint64_t>(FileHeader::kLargest),
             "{}: offset 0: header length {} is over the format's limit of {} bytes; is it a "
             "safetensors file?",
             file.path(), length, FileHeader::kLargest);
  const auto bytes = static_cast<std::int64_t>(length);
  ZERO_CHECK(bytes <= size - FileHeader::kLengthBytes,
             "{}: offset 0: header length {} reaches offset {}, beyond the end of the file at {}",
             file.path(), bytes, FileHeader::kLengthBytes + bytes, size);
  std::string json(static_cast<std::size_t>(bytes), '\0');
  file.read(FileHeader::kLengthBytes, std::as_writable_bytes(std::span(json)));
  return parse_header(file.path(), json, size);
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path)
    : file_(File::open_read(path)), header_(read_header(file_)) {
  for (const FileTensor& tensor : header_.tensors) by_name_.emplace(tensor.name, &tensor);
}

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
  file_.read(offset_of(tensor, first), out);
}

SafetensorsWriter::SafetensorsWriter(File file, FileHeader layout)
    : file_(std::move(file)), header_(std::move(layout)) {
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) {
    by_name_.emplace(header_.tensors[i].name, i);
  }
}

SafetensorsWriter SafetensorsWriter::create(const std::string& path, FileHeader layout) {
  SafetensorsWriter writer(File::create(path), std::move(layout));
  const FileHeader& header = writer.header_;
  const std::string head = header_bytes(header);
  writer.file_.reserve(header.data_begin +
                       (header.tensors.empty() ? 0 : header.tensors.back().end));
  writer.file_.write(0, std::as_bytes(std::span(head)));
  return writer;
}

SafetensorsWriter SafetensorsWriter::open(const std::string& path, FileHeader layout) {
  return {File::open_write(path), std::move(layout)};
}

void SafetensorsWriter::write(std::string_view name, std::int64_t first,
                              std::span<const std::byte> bytes) const {
  const auto found = by_name_.find(std::string(name));
  ZERO_CHECK(found != by_name_.end(), "{}: has no tensor \"{}\" to write", file_.path(), name);
  const FileTensor& tensor = header_.tensors[found->second];
  check_range(file_.path(), tensor, first, std::ssize(bytes));
  file_.write(header_.data_begin + tensor.begin + first * size_of(tensor.type), bytes);
}

}  // namespace zero
