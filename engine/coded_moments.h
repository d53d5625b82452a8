// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <map>

#include "engine/state_access.h"
#include "optim/optimizer.h"

namespace zero {

/// Reads and writes 8-bit moments as fp32 values of the host. Decoded values encode to the same
/// codes and scales, so states that were read whole blocks at a time and set again have the same
/// bits. Owns the values of blocks that were set in part: a block is encoded anew from all that is
/// known of it, so the pieces and the order in which it is set do not matter. Used by one host
/// thread.
class CodedMoments {
 public:
  static constexpr std::int64_t kPiece = 1 << 18;  ///< elements decoded on the host at a time
  static constexpr std::int64_t kScales = kPiece / kMomentBlock + 1;  ///< fp32, of a piece

  /// Allocates host memory for scales (staging), if moments are coded and host code cannot access
  /// the device's memory. All must outlive this object.
  CodedMoments(Device& device, StateAccess& access, Optimizer& optimizer);

  /// Calls visit(begin, values) for fp32 pieces that cover `from`, in order, as StateAccess::read.
  void read(const CodedMoment& from, const StateAccess::Visit& visit) const;
  /// Submits to `stream` the copy of the values of `from` to `to`: fp32, of the host or the device.
  /// Does not block if host memory is pinned. This object must outlive the copy.
  void copy(const CodedMoment& from, const View& to, Stream& stream);
  /// Sets elements [at, at + values.count()) of a moment of whole blocks. Elements from `end` on
  /// are padding. Blocks until they are set.
  void set(const CodedMoment& moment, std::int64_t at, std::int64_t end, const View& values);
  /// Forgets which blocks were set in part: moments change by other means.
  void forget() { parts_.clear(); }

 private:
  /// What is known of a block.
  struct Part {
    std::array<float, kMomentBlock> values{};
    std::bitset<kMomentBlock> set;
  };

  void copy_from_host(const CodedMoment& from, const View& to, Stream& stream);
  void copy_to_host(const CodedMoment& from, const View& to, Stream& stream);
  void copy_piece(const CodedMoment& from, const View& to, Stream& stream);
  void encode(const CodedMoment& to, const View& values);
  void set_blocks(const CodedMoment& moment, std::int64_t at, const View& values);
  void set_part(const CodedMoment& moment, std::int64_t at, std::int64_t end, const View& values);

  Device& device_;
  StateAccess& access_;
  Optimizer& optimizer_;
  Buffer scales_;              ///< of a piece on its way to the host, on one stream at a time
  Stream* copying_ = nullptr;  ///< the last such stream
  Event copied_;               ///< after its last copy
  std::map<const void*, Part> parts_;  ///< by the address of a block's codes
};

}  // namespace zero
