// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace zero::testing {

/// The number of threads of this process that have the name. A new thread has its maker's.
inline int threads_named(const std::string& name) {
  int count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(thread.path() / "comm");
    std::string found;
    if (std::getline(file, found) && found == name) ++count;
  }
  return count;
}

}  // namespace zero::testing
