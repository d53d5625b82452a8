// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/tier_options.h"
#include "tiers/tier_file.h"
#include "tiers/tier_host.h"
#include "tiers/window_memory.h"

namespace zero {

/// Where an engine's optimizer states and shards of parameters are between uses, if its options ask
/// for a place beside the device's memory: a file, or, for optimizer states of a GPU, pinned host
/// memory; and the memory of all windows on it: a ring, through which passes over all states go
/// (StateWindows), slots for shards on their way to a gather (ShardFetches), and tiles for access
/// of the host and for copies (StateAccess). Windows are where updates compute: host memory on a
/// CPU, device memory on a GPU. States: reserving, then open. Used by one host thread.
class StateHome {
 public:
  /// Requests of a tile of a file: enough in flight to keep a disk busy that one request does not.
  static constexpr std::int64_t kTileRequests = 4;
  /// Bytes of the tile in device memory through which copies of small moments pass.
  static constexpr std::int64_t kDeviceTile = std::int64_t{1} << 20;
  using Ticket = TierFile::Ticket;

  /// `device` must outlive this.
  StateHome(Device& device, const TierOptions& options);

  /// Whether values may live here: equal on all ranks.
  bool asked() const { return file_ || host_; }
  /// Whether they live in a file, whose disk may fail.
  bool may_fail() const { return file_.has_value(); }
  /// Room for values of a segment, zeros until written: a view that no kernel may access.
  View reserve(std::int64_t count, DType dtype, MemoryClass memory_class, std::string_view label);
  bool holds(const View& view) const { return in_file(view) || in_host(view); }
  /// Of values in the file: a view that must not be dereferenced.
  bool in_file(const View& view) const { return file_ && file_->holds(view); }
  /// Of values in pinned host memory: host code may access them behind host()->moved().
  bool in_host(const View& view) const { return host_ && host_->holds(view); }
  /// Allocates the windows, whole blocks of `ring` and of `slots` bytes among them, and makes the
  /// file, if anything lives here. Throws zero::Error on this rank alone.
  void open(std::int64_t ring, std::int64_t slots);

  /// Starts to fill `to`, in the ring, from `from`, which this holds(): work of the transfer
  /// stream. `to` belongs to the transfer until finish().
  Ticket start_read(const View& from, const View& to);
  /// Starts to write `from`, in the ring, to `to`, which this holds(); likewise.
  Ticket start_write(const View& from, const View& to);
  /// Work of the transfer stream behind which the transfer is over. Once for each ticket.
  void finish(Ticket ticket);
  /// Whether a transfer is over before later work of the transfer stream begins, without finish():
  /// copies are, requests to a disk are not.
  bool in_order() const { return !file_; }

  /// Other transfers between views that are in_file(), or in_host(), and windows.
  TierFile& file() { return *file_; }
  TierHost& host() { return *host_; }
  View ring() const { return windows().slice(0, ring_); }
  View slots() const { return windows().slice(ring_, slots_); }
  /// Tiles of the file are cut at multiples of this many bytes of each state.
  std::int64_t tile_bytes() const { return tile_; }
  View host_tile() const { return windows().slice(ring_ + slots_, tile_); }
  View copy_tile() const { return windows().slice(ring_ + slots_ + tile_, tile_); }
  /// kDeviceTile bytes, if states of other types than fp32 are in host memory.
  View device_tile() const { return windows().slice(ring_, tile_); }

  /// Why this rank's values are lost: the first transfer that failed. Empty: none has. Any thread.
  std::string failure() const;

 private:
  const View& windows() const { return file_ ? memory_.view() : device_memory_.view(); }

  Device& device_;
  WindowMemory memory_;
  Buffer device_memory_;          // the windows of host_
  std::optional<TierFile> file_;  // after their windows, which they use
  std::optional<TierHost> host_;
  bool has_narrow_ = false;  // states in host_ of other types than fp32
  std::int64_t ring_ = 0;
  std::int64_t slots_ = 0;
  std::int64_t tile_ = 0;
};

}  // namespace zero
