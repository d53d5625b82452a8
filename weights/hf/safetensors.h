// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "files/file_system.h"
#include "weights/hf/file_header.h"

namespace zero {

/// An open safetensors file whose header has been checked. Holds the header, never the data: read()
/// reads only the requested bytes from the file. Several threads may read at the same time.
class SafetensorsReader {
 public:
  /// Throws zero::Error naming file, tensor and offset if the header is wrong.
  explicit SafetensorsReader(std::unique_ptr<files::InputFile> file);
  explicit SafetensorsReader(const std::string& path);

  const std::string& path() const { return file_->path(); }
  const FileHeader& header() const { return header_; }
  /// The tensor with that name, or null.
  const FileTensor* find(std::string_view name) const;
  /// File offset of an element.
  std::int64_t offset_of(const FileTensor& tensor, std::int64_t element) const;
  /// Fills `out`, a whole number of elements in the file's encoding, from element `first` of
  /// `tensor`, one of header().tensors.
  void read(const FileTensor& tensor, std::int64_t first, std::span<std::byte> out) const;

 private:
  std::unique_ptr<files::InputFile> file_;
  FileHeader header_;
  std::unordered_map<std::string_view, const FileTensor*> by_name_;
};

/// Converts elements in a file's encoding (F32, BF16, F16; any alignment) to fp32, exactly.
/// Throws zero::Error on other types and if `bytes` does not hold exactly the elements of `to`.
void decode(FileType from, std::span<const std::byte> bytes, std::span<float> to);

/// The file of a folder that lists which file holds which tensor, if they are several.
inline constexpr const char* kWeightIndex = "model.safetensors.index.json";

/// Whether `name` can only name a file of the folder it is looked up in.
bool is_plain_name(std::string_view name);

/// The file names that the text of a model.safetensors.index.json lists, each once, sorted. `index`
/// names the text in messages. Throws zero::Error if the text is no index, or if a name is not a
/// plain file name: a downloaded file must not choose which other files of this machine are opened.
/// Symbolic links of plain names are followed: the folder's owner made them.
std::vector<std::string> files_of_index(const std::string& index, std::string_view text);

}  // namespace zero
