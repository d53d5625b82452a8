// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

namespace zero {

/// Owns a file descriptor and closes it on destruction.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  int get() const { return value_; }
  /// Gives up ownership: the caller closes the descriptor.
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

/// Closes the descriptors of this process from `first` on, as /proc lists them.
inline void close_listed_descriptors(int first) {
  std::vector<int> open;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", unreadable)) {
    open.push_back(std::atoi(entry.path().filename().c_str()));
  }
  for (const int each : open) {
    if (each >= first) ::close(each);
  }
}

/// Closes the descriptors of this process from `first` on. Linux before 5.9 has no call for it, and
/// filters of containers may refuse the call.
inline void close_descriptors(int first) {
  if (::close_range(static_cast<unsigned>(first), ~0U, 0) != 0) close_listed_descriptors(first);
}

}  // namespace zero
