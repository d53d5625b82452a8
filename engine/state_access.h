// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/host_access.h"

namespace zero {

/// Access of host code, and of copies, to model states wherever they live. Used by one host thread.
class StateAccess {
 public:
  /// Allocates host memory (staging), if any is needed. `device` must outlive this object.
  explicit StateAccess(Device& device) : device_(device), memory_(device) {}
  StateAccess(const StateAccess&) = delete;
  StateAccess& operator=(const StateAccess&) = delete;

  using Visit = HostAccess::Visit;
  /// As HostAccess::read().
  void read(const View& view, const Visit& visit) { memory_.read(view, visit); }
  /// As HostAccess::write().
  void write(const View& view, const Visit& fill) { memory_.write(view, fill); }
  /// Converts `values` (host memory) to `to`, as work of the compute stream or at once: both must
  /// stay until that stream is synchronized.
  void set(const View& to, const View& values);
  /// Submits to `stream` the copy of `from` to `to`: fp32, of the host or the device.
  void copy(const View& from, const View& to, Stream& stream);

  /// For views of memory only.
  HostAccess& memory() { return memory_; }

 private:
  Device& device_;
  HostAccess memory_;
};

}  // namespace zero
