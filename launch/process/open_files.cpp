// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/open_files.h"

#include <sys/resource.h>

namespace zero {

OpenFileLimit raise_open_file_limit() noexcept {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);  // cannot fail
  const rlimit raised{.rlim_cur = files.rlim_max, .rlim_max = files.rlim_max};
  if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) files = raised;
  return {.soft = files.rlim_cur, .hard = files.rlim_max};
}

}  // namespace zero
