// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Preloaded: a file server that does not answer. No open() of the file ZERO_STUCK_FILE returns.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

// Without the header that declares them with three dots, whose argument travels like a third one.
extern "C" {

int open(const char* path, int flags, unsigned mode) {
  constexpr int kHere = -100;  // AT_FDCWD
  const char* const stuck = std::getenv("ZERO_STUCK_FILE");
  while (stuck != nullptr && std::strcmp(path, stuck) == 0) ::pause();
  return static_cast<int>(::syscall(SYS_openat, kHere, path, flags, mode));
}

int open64(const char* path, int flags, unsigned mode) { return open(path, flags, mode); }
}
