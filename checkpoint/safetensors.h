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
/// reads only the requested bytes from the file. Several threads may read at the same time.
class SafetensorsReader {
 public:
  /// Throws zero::Error naming file, tensor and offset if the header is wrong.
  explicit SafetensorsReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const FileHeader& header() const { return header_; }
  /// The tensor with that name, or null.
  const FileTensor* find(std::string_view name) const;
  /// File offset of an element.
  std::int64_t offset_of(const FileTensor& tensor, std::int64_t element) const;
  /// Fills `out`, a whole number of elements in the file's encoding, from element `first` of
  /// `tensor`, one of header().tensors.
  void read(const FileTensor& tensor, std::int64_t first, std::span<std::byte> out) const;

 private:
  File file_;
  FileHeader header_;
  std::unordered_map<std::string_view, const FileTensor*> by_name_;
};

/// A safetensors file that one or several processes write together. Every process makes the same
/// layout (lay_out); one calls create, and after create has returned the others call open; each
/// writes elements that no other process writes, then calls finish.
class SafetensorsWriter {
 public:
  /// Creates the file with its header at its final size; an existing file of that name is lost.
  static SafetensorsWriter create(const std::string& path, FileHeader layout);
  static SafetensorsWriter open(const std::string& path, FileHeader layout);

  const FileHeader& header() const { return header_; }
  /// Writes elements of the tensor `name` from `first` on; `bytes` is a whole number of elements.
  void write(std::string_view name, std::int64_t first, std::span<const std::byte> bytes) const;
  /// Blocks until this process's writes are on the disk; no write may follow.
  void finish() { file_.sync_and_close(); }

 private:
  SafetensorsWriter(File file, FileHeader layout);

  File file_;
  FileHeader header_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

}  // namespace zero
