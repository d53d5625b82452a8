// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/device_twin.h"

namespace zero {

DeviceTwin::DeviceTwin(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                       std::string_view label)
    : device_(&device), count_(count), dtype_(dtype) {
  if (apart()) buffer_ = device.allocate(count, dtype, memory_class, label);
}

View DeviceTwin::of(const View& host) const {
  ZERO_CHECK(host.dtype() == dtype_ && host.count() <= count_,
             "a device's twin of {} {} cannot stand for {} {} of the host", count_, name_of(dtype_),
             host.count(), name_of(host.dtype()));
  return apart() ? buffer_.slice(0, host.count()) : host;
}

View DeviceTwin::upload(Stream& stream, const View& host) const {
  const View twin = of(host);
  if (apart()) device_->kernels().convert(stream, host, twin);
  return twin;
}

void DeviceTwin::download(Stream& stream, const View& host) const {
  const View twin = of(host);
  if (apart()) device_->kernels().convert(stream, twin, host);
}

}  // namespace zero
