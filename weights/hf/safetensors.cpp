// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/hf/safetensors.h"

#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace zero {
namespace {

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

}  // namespace zero
