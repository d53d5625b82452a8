// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/cuda/emulator/access_set.h"

namespace zero::cuda::emulated {

/// Notes what somebody does to the memory that streams share: the device's, and pinned memory.
class Tracker {
 public:
  Tracker() = default;
  Tracker(ByteRange device, ByteRange pinned) : device_(device), pinned_(pinned) {}

  void touch(const void* data, std::size_t bytes, Access access) {
    const ByteRange range = range_of(data, bytes);
    if (device_.holds(range.begin) || pinned_.holds(range.begin)) accesses_.add(range, access);
  }
  AccessSet& accesses() { return accesses_; }

 private:
  ByteRange device_;
  ByteRange pinned_;
  AccessSet accesses_;
};

/// Notes what the calling thread does at present: an item of a stream, or host code between calls.
/// Null: nobody wants to know.
extern constinit thread_local Tracker* tracker;

inline void touch(const void* data, std::size_t bytes, Access access) {
  if (tracker != nullptr) tracker->touch(data, bytes, access);
}

}  // namespace zero::cuda::emulated
