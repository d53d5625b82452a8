// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/text_file.h"

#include <algorithm>
#include <limits>
#include <span>

#include "base/error.h"
#include "weights/damaged_checkpoint.h"

namespace zero {

std::string read_text(files::FileSystem& files, const std::string& path, std::int64_t largest) {
  const files::PathKind kind = files.kind_of(path);
  damage_of([&] {
    ZERO_CHECK(kind == files::PathKind::file || kind == files::PathKind::missing,
               "{}: is not a regular file", path);
  });
  const auto file = files.open_read(path);
  damage_of([&] { check_size(*file, largest); });
  return whole_file(*file);
}

void check_size(const files::InputFile& file, std::int64_t largest) {
  ZERO_CHECK(file.size() <= largest, "{}: has {} bytes, expected at most {}", file.path(),
             file.size(), largest);
}

std::string whole_file(files::InputFile& file) {
  return start_of_file(file, std::numeric_limits<std::size_t>::max());
}

std::string start_of_file(files::InputFile& file, std::size_t most) {
  std::string text(std::min(static_cast<std::size_t>(file.size()), most), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text(files::FileSystem& files, const std::string& path, std::string_view text) {
  const auto file = files.create(path, static_cast<std::int64_t>(text.size()));
  file->write(0, std::as_bytes(std::span(text)));
  file->sync();
}

}  // namespace zero
