// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

#include "device/device.h"

namespace zero {

/// The part of a rank's values that lives in pinned host memory below the memory of its device.
/// Views of it have no device: kernels cannot access them, and host code may once moved() has come.
/// Transfers to and from windows of device memory are work of the device's transfer stream, each
/// behind those before it. Used by the device's host thread. Destruction waits for the transfer
/// stream, and never throws.
class TierHost {
 public:
  /// `device` must outlive this. On a planning device memory is charged, and nothing else happens.
  explicit TierHost(Device& device) : device_(device) {}
  ~TierHost();
  TierHost(const TierHost&) = delete;
  TierHost& operator=(const TierHost&) = delete;

  /// Memory of the host for `count` elements, zeros, charged to the device's ledger until
  /// destruction. Zero elements: an empty view, which this does not hold. Throws zero::Error if
  /// out of memory.
  View reserve(std::int64_t count, DType dtype, MemoryClass memory_class, std::string_view label);
  /// Bytes of all values so far.
  std::int64_t bytes() const { return bytes_; }
  /// Whether a view is of values here.
  bool holds(const View& view) const;

  /// Submits the copy of `from`, held here, to `to`, of the device; equal dtypes and counts.
  void read(const View& from, const View& to) { copy(from, to); }
  /// Submits the copy of `from`, of the device, to `to`, held here; likewise.
  void write(const View& from, const View& to) { copy(from, to); }
  /// The point behind all transfers so far.
  const Event& moved() const { return moved_; }

 private:
  void copy(const View& from, const View& to);

  Device& device_;
  std::map<const std::byte*, Buffer> buffers_;  // by their first byte
  std::int64_t bytes_ = 0;
  Event moved_;
};

}  // namespace zero
