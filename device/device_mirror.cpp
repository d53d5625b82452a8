// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/device_mirror.h"

namespace zero {

DeviceMirror::DeviceMirror(Device& device, std::int64_t count, DType dtype,
                           MemoryClass memory_class, std::string_view label)
    : device_(&device), count_(count), dtype_(dtype) {
  if (is_copied()) buffer_ = device.allocate(count, dtype, memory_class, label);
}

View DeviceMirror::of(const View& host) const {
  ZERO_CHECK(host.dtype() == dtype_ && host.count() <= count_,
             "a device's mirror of {} {} cannot stand for {} {} of the host", count_,
             name_of(dtype_), host.count(), name_of(host.dtype()));
  return is_copied() ? buffer_.slice(0, host.count()) : host;
}

View DeviceMirror::upload(Stream& stream, const View& host) const {
  const View mirror = of(host);
  if (is_copied()) device_->kernels().convert(stream, host, mirror);
  return mirror;
}

void DeviceMirror::download(Stream& stream, const View& host) const {
  const View mirror = of(host);
  if (is_copied()) device_->kernels().convert(stream, mirror, host);
}

}  // namespace zero
