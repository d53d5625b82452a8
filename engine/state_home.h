// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "engine/tier_options.h"
#include "tiers/tier_file.h"
#include "tiers/tier_host.h"

namespace zero {

/// Where an engine's optimizer states and shards of parameters are between uses, if its options ask
/// for a place beside the device's memory: a file, or, of a GPU, pinned host memory, each kind in
/// its own; and the memory of all windows on them: a ring, through which passes over all states go
/// (StateWindows), slots for shards on their way to a gather (ShardFetches), and tiles for access
/// of the host and for copies (StateAccess). Ring and slots are where the device computes: host
/// memory on a CPU, device memory on a GPU. Between a file and a GPU's windows each has a twin in
/// pinned host memory, which the file is read into and written from. States: reserving, then open.
/// Used by one host thread.
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
  /// Whether some live in a file, whose disk may fail.
  bool may_fail() const { return file_.has_value(); }
  /// Room for values of a segment in the place of their kind, MemoryClass::parameters or
  /// ::optimizer, zeros until written: a view that no kernel may access.
  View reserve(std::int64_t count, DType dtype, MemoryClass memory_class, std::string_view label);
  bool holds(const View& view) const { return in_file(view) || in_host(view); }
  /// Of values in the file: a view that must not be dereferenced.
  bool in_file(const View& view) const { return file_ && file_->holds(view); }
  /// Of values in pinned host memory: host code may access them behind host().moved().
  bool in_host(const View& view) const { return host_ && host_->holds(view); }
  /// Allocates the windows, whole blocks of `ring` and of `slots` bytes among them, and makes the
  /// file, if anything lives here. Throws zero::Error on this rank alone.
  void open(std::int64_t ring, std::int64_t slots);

  /// What is best read of `view`: the whole blocks that hold it in a file, else the view.
  View whole_blocks(const View& view) const { return in_file(view) ? file_->around(view) : view; }
  /// Starts to fill `to`, in the ring or the slots, from `from`, which this holds(): work of the
  /// transfer stream. `to` belongs to the transfer until finish().
  Ticket start_read(const View& from, const View& to);
  /// Starts to write `from`, in the ring, to `to`, which this holds(); likewise.
  Ticket start_write(const View& from, const View& to);
  /// Work of the transfer stream behind which the transfer is over. Once for each ticket.
  void finish(Ticket ticket);
  /// Whether every transfer is over before later work of the transfer stream begins, without
  /// finish(): copies are, requests to a disk are not.
  bool in_order() const { return !file_; }

  /// Other transfers between views that are in_file(), or in_host(), and windows.
  TierFile& file() { return *file_; }
  TierHost& host() { return *host_; }
  View ring() const { return windows().slice(0, ring_); }
  View slots() const { return windows().slice(ring_, slots_); }
  /// Tiles of the file are cut at multiples of this many bytes of each state.
  std::int64_t tile_bytes() const { return tile_; }
  View host_tile() const { return host_memory_.view().slice(tiles_begin_, tile_); }
  View copy_tile() const { return host_memory_.view().slice(tiles_begin_ + tile_, tile_); }
  /// Of a GPU: kDeviceTile bytes, if values of other types than fp32 live here.
  View device_tile() const { return device_memory_.view().slice(ring_ + slots_, device_tile_); }

  /// Why this rank's values are lost: the first transfer that failed. Empty: none has. Any thread.
  std::string failure() const;

 private:
  /// The bytes of a window in pinned host memory and the window, of equal dtypes and counts.
  struct Twins {
    View host;
    View window;
  };

  bool has_twins() const { return file_ && on_gpu_; }
  const View& windows() const { return on_gpu_ ? device_memory_.view() : host_memory_.view(); }
  View twin(const View& window) const;

  Device& device_;
  const bool on_gpu_;
  const Tier states_;
  const Tier shards_;
  WindowMemory host_memory_;      // of a file: a CPU's windows or the twins of a GPU's, and tiles
  Buffer device_memory_;          // a GPU's windows
  std::optional<TierFile> file_;  // after the windows, which it uses
  std::optional<TierHost> host_;
  std::map<Ticket, Twins> arriving_;  // reads of a file that a copy to the window follows
  bool has_narrow_ = false;           // values of other types than fp32
  std::int64_t ring_ = 0;
  std::int64_t slots_ = 0;
  std::int64_t tiles_begin_ = 0;
  std::int64_t tile_ = 0;
  std::int64_t device_tile_ = 0;
};

}  // namespace zero
