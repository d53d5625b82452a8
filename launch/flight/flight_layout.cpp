// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/flight_layout.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace zero {

MappedFile::MappedFile(int file, std::size_t bytes, Access access, const std::string& path)
    : bytes_(bytes) {
  const bool writes = access == Access::write;
  // A writer's pages are there before it needs them.
  void* const begin = ::mmap(nullptr, bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ,
                             MAP_SHARED | (writes ? MAP_POPULATE : 0), file, 0);
  ZERO_CHECK(begin != MAP_FAILED, "{}: cannot be mapped: {}", path, std::strerror(errno));
  begin_ = static_cast<std::byte*>(begin);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : begin_(std::exchange(other.begin_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(begin_, other.begin_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (begin_ != nullptr) ::munmap(begin_, bytes_);
}

}  // namespace zero
