// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/tier_options.h"
#include "tiers/tier_file.h"
#include "tiers/window_memory.h"

namespace zero {

/// The file of an engine's optimizer states and shards of parameters, if its options ask for one,
/// and the memory of all windows on it: a ring, through which passes over all states go
/// (StateWindows), slots for shards on their way to a gather (ShardFetches), and a tile each for
/// access of the host and for copies (StateAccess). States: reserving, then open. Used by one host
/// thread.
class StateFile {
 public:
  /// Requests of a tile: enough in flight to keep a disk busy that one request does not.
  static constexpr std::int64_t kTileRequests = 4;

  /// `device` must outlive this.
  StateFile(Device& device, const TierOptions& options);

  /// Whether values may live in a file: equal on all ranks.
  bool asked() const { return file_.has_value(); }
  /// Room for values of a segment, zeros until written: a view that must not be dereferenced.
  View reserve(std::int64_t count, DType dtype, MemoryClass memory_class, std::string_view label) {
    return file_->reserve(count, dtype, memory_class, label);
  }
  bool holds(const View& view) const { return file_ && file_->holds(view); }
  /// Allocates the windows, whole blocks of `ring` and of `slots` bytes among them, and makes the
  /// file, if it holds anything. Throws zero::Error on this rank alone.
  void open(std::int64_t ring, std::int64_t slots);

  /// Transfers between views that this file holds() and its windows.
  TierFile& transfers() { return *file_; }
  View ring() const { return memory_.view().slice(0, ring_); }
  View slots() const { return memory_.view().slice(ring_, slots_); }
  /// Tiles of the file are cut at multiples of this many bytes of each state.
  std::int64_t tile_bytes() const { return tile_; }
  View host_tile() const { return memory_.view().slice(ring_ + slots_, tile_); }
  View copy_tile() const { return memory_.view().slice(ring_ + slots_ + tile_, tile_); }

  /// Why this rank's values are lost: the first transfer that failed. Empty: none has. Any thread.
  std::string failure() const;

 private:
  Device& device_;
  WindowMemory memory_;
  std::optional<TierFile> file_;  // after its windows, which it uses
  std::int64_t ring_ = 0;
  std::int64_t slots_ = 0;
  std::int64_t tile_ = 0;
};

}  // namespace zero
