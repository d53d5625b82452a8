// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>

#include "device/device.h"

namespace zero {

/// Host code's way to values in a device's memory, however many: that memory itself where host code
/// sees it, elsewhere pieces of it that pass through two host buffers, one being copied while the
/// host has the other. Calls block the host, behind all work of the compute stream; work of the
/// communication stream on the same memory must be done. Used by one host thread.
class HostPieces {
 public:
  HostPieces() = default;
  /// Takes its buffers (staging) at once, if it needs any. `device` must outlive it.
  explicit HostPieces(Device& device);

  /// Elements [begin, begin + values.count()) of a view, in host memory until the call returns.
  using Visit = std::function<void(std::int64_t begin, const View& values)>;
  /// Calls visit for pieces that cover `view`, in order; but the last, they are multiples of 64
  /// elements.
  void read(const View& view, const Visit& visit);
  /// Gives `view` the values that `fill` writes to pieces that cover it, in order.
  void write(const View& view, const Visit& fill);

 private:
  struct Piece {
    Buffer memory;
    Event copied;  ///< behind its last copy
  };
  static constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

  View part(std::size_t piece, const View& of) const;

  Device* device_ = nullptr;
  std::array<Piece, 2> pieces_;
};

}  // namespace zero
