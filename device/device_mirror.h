// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "device/device.h"

namespace zero {

/// A device's view of values in host memory (losses, token ids, sums): the host memory itself if
/// the device can access it, otherwise a device buffer to copy through. Copies are asynchronous on
/// the given stream; host memory and mirror must outlive them.
class DeviceMirror {
 public:
  DeviceMirror() = default;
  /// For up to `count` values of `dtype`; allocates only if host code cannot access the device
  /// memory. `device` must outlive the mirror.
  DeviceMirror(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
               std::string_view label);

  /// The device's view of `host`. Throws zero::Error if `host` is too large or of another dtype.
  View of(const View& host) const;
  /// The same, after a copy of the values of `host` in stream order.
  View upload(Stream& stream, const View& host) const;
  /// Copies the values of of(host) to `host`.
  void download(Stream& stream, const View& host) const;

 private:
  bool is_copied() const { return device_->memory() == MemorySpace::device; }

  Device* device_ = nullptr;
  std::int64_t count_ = 0;
  DType dtype_ = DType::fp32;
  Buffer buffer_;
};

}  // namespace zero
