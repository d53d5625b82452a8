// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace zero::fuzz {

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: expected that %s\n", what);
  std::abort();
}

MemoryFile::MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  expect(descriptor_ >= 0, "a file in memory can be made");
  const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
  expect(written == static_cast<ssize_t>(bytes.size()), "a file in memory can be written");
}

MemoryFile::~MemoryFile() { ::close(descriptor_); }

std::string MemoryFile::path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

}  // namespace zero::fuzz
