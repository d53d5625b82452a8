// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace zero {

MappedFile::MappedFile(int file, std::size_t bytes, Access access, const std::string& path)
    : begin_(nullptr, Unmap{bytes}) {
  const bool writes = access == Access::write;
  // A writer's pages are there before it needs them.
  void* const begin = ::mmap(nullptr, bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ,
                             MAP_SHARED | (writes ? MAP_POPULATE : 0), file, 0);
  ZERO_CHECK(begin != MAP_FAILED, "{}: cannot be mapped: {}", path, std::strerror(errno));
  begin_.reset(static_cast<std::byte*>(begin));
}

void MappedFile::Unmap::operator()(std::byte* begin) const { ::munmap(begin, bytes); }

}  // namespace zero
