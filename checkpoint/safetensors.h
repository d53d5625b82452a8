// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "checkpoint/file.h"
#include "checkpoint/file_header.h"

namespace zero {

/// An open safetensors file whose header has been checked. Holds the header, never the data: read()
/// takes just the bytes asked for from the file. May be read from several threads.
class SafetensorsReader {
 public:
  /// Throws zero::Error naming file, tensor and offset when the header lies.
  explicit SafetensorsReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const FileHeader& header() const { return header_; }
  /// The tensor of that name, or null.
  const FileTensor* find(std::string_view name) const;
  /// File offset of an element.
  std::int64_t offset_of(const FileTensor& tensor, std::int64_t element) const;
  /// Fills `out`, a whole number of elements as the file has them, from element `first` of
  /// `tensor`, one of header().tensors.
  void read(const FileTensor& tensor, std::int64_t first, std::span<std::byte> out) const;

 private:
  File file_;
  FileHeader header_;
  std::unordered_map<std::string_view, const FileTensor*> by_name_;
};

/// A safetensors file being written, by one or by several processes at once: each makes the same
/// layout (lay_out); one calls create, and once that has returned the others call open; each writes
/// elements that no other writes, and then finish.
class SafetensorsWriter {
 public:
  /// Makes the file with its header and its final size; an older one of that name is lost.
  static SafetensorsWriter create(const std::string& path, FileHeader layout);
  static SafetensorsWriter open(const std::string& path, FileHeader layout);

  const FileHeader& header() const { return header_; }
  /// Writes elements from `first` on of the tensor `name`; `bytes` is a whole number of elements.
  void write(std::string_view name, std::int64_t first, std::span<const std::byte> bytes) const;
  /// Returns when what this process wrote is on the disk; nothing may be written after it.
  void finish() { file_.sync_and_close(); }

 private:
  SafetensorsWriter(File file, FileHeader layout);

  File file_;
  FileHeader header_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

}  // namespace zero
