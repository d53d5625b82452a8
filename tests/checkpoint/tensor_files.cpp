// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/tensor_files.h"

#include <cstdint>
#include <cstring>
#include <filesystem>

namespace zero::testing {

std::string recorded(std::string_view name) {
  return (std::filesystem::path(ZERO_RECORDED_FILES) / name).string();
}

std::string file_of(std::string_view json, std::string_view data) {
  const auto length = static_cast<std::uint64_t>(json.size());
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes.append(json).append(data);
}

std::vector<std::byte> bytes_of(const SafetensorsReader& file, const FileTensor& tensor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.end - tensor.begin));
  file.read(tensor, 0, bytes);
  return bytes;
}

void write_tensors(const std::string& path, const FileHeader& layout,
                   const std::map<std::string, std::vector<std::byte>>& values) {
  std::string file = header_bytes(layout);
  for (const FileTensor& tensor : layout.tensors) {
    const auto bytes = static_cast<std::size_t>(tensor.end - tensor.begin);
    const auto found = values.find(tensor.name);
    if (found == values.end()) {
      file.append(bytes, '\0');
      continue;
    }
    ZERO_CHECK(found->second.size() == bytes, "tensor \"{}\": {} bytes, expected {}", tensor.name,
               found->second.size(), bytes);
    file.append(reinterpret_cast<const char*>(found->second.data()), bytes);
  }
  write_bytes(path, file);
}

}  // namespace zero::testing
