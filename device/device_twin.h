// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "device/device.h"

namespace zero {

/// What a device's work sees of values in host memory (losses, token ids, sums): that memory itself
/// where it can, a buffer of the device beside it where its memory is apart. Copies are
/// asynchronous on the stream given, which the host memory and the twin must outlive.
class DeviceTwin {
 public:
  DeviceTwin() = default;
  /// For up to `count` values of `dtype`; takes memory only where it is apart. `device` must
  /// outlive it.
  DeviceTwin(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
             std::string_view label);

  /// What stands for `host` on the device. Throws zero::Error when it is too large or of another
  /// dtype.
  View of(const View& host) const;
  /// The same, with the values that `host` has when the stream comes to it.
  View upload(Stream& stream, const View& host) const;
  /// Gives `host` the values of of(host).
  void download(Stream& stream, const View& host) const;

 private:
  bool apart() const { return device_->memory() == Memory::apart; }

  Device* device_ = nullptr;
  std::int64_t count_ = 0;
  DType dtype_ = DType::fp32;
  Buffer buffer_;
};

}  // namespace zero
