// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>

#include "device/device.h"

namespace zero {

/// Host access to any number of values in a device's memory: directly if host code can access that
/// memory, otherwise in pieces, double-buffered through two host buffers. Calls block the host
/// until the compute stream has run all work submitted before; work of the communication stream on
/// the same memory must be complete. Used by one host thread.
class HostAccess {
 public:
  HostAccess() = default;
  /// Allocates the buffers (staging), if any are needed. `device` must outlive this object.
  explicit HostAccess(Device& device);

  /// Elements [begin, begin + values.count()) of a view; `values` is host memory, valid during the
  /// call.
  using Visit = std::function<void(std::int64_t begin, const View& values)>;
  /// Calls visit for pieces that cover `view`, in order; all but the last are multiples of 64
  /// elements.
  void read(const View& view, const Visit& visit);
  /// Calls `fill` for pieces that cover `view`, in order, and copies the values it writes to
  /// `view`.
  void write(const View& view, const Visit& fill);

 private:
  struct Piece {
    Buffer memory;
    Event copied;  ///< after the buffer's last copy
  };
  static constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

  View part(std::size_t piece, const View& of) const;

  Device* device_ = nullptr;
  std::array<Piece, 2> pieces_;
};

}  // namespace zero
