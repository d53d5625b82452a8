// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/host_access.h"
#include "engine/state_home.h"

namespace zero {

/// Access of host code, and of copies, to model states wherever they live: memory of the device,
/// pinned host memory, in place, or a file, of which one tile is held for the host and one for
/// copies. Tiles stay until another is needed, so that runs that are adjacent in the file, as those
/// of a load or a save, are one transfer. Whoever else changes the file calls settle() first. No
/// failure of the disk is thrown (StateHome::failure()): values are anything then. Used by one host
/// thread.
class StateAccess {
 public:
  /// Allocates host memory (staging), if any is needed. Both must outlive this object.
  StateAccess(Device& device, StateHome& home) : device_(device), home_(home), memory_(device) {}
  StateAccess(const StateAccess&) = delete;
  StateAccess& operator=(const StateAccess&) = delete;

  using Visit = HostAccess::Visit;
  /// As HostAccess::read(): so too of a view in the file that begins at a multiple of kAlignment
  /// elements of its segment.
  void read(const View& view, const Visit& visit);
  /// As HostAccess::write(). What is written to a tile of the file reaches the file with the next
  /// tile, or settle().
  void write(const View& view, const Visit& fill);
  /// Converts `values` (host memory) to `to`, as work of the compute stream or at once: both must
  /// stay until that stream is synchronized.
  void set(const View& to, const View& values);
  /// Submits to `stream` the copy of `from` to `to`: fp32, of the host or the device.
  void copy(const View& from, const View& to, Stream& stream);

  /// Whether a view is one of the file.
  bool in_file(const View& view) const { return home_.in_file(view); }
  /// Whether a view is one of pinned host memory.
  bool in_host(const View& view) const { return home_.in_host(view); }
  bool away(const View& view) const { return home_.holds(view); }
  /// Calls use(begin, values) to submit work of the transfer stream, behind `stream` and before its
  /// later work, on pieces, in host memory, that cover `view`, of the file, in order. Does not
  /// block the host, unless write() came before.
  void visit_later(const View& view, Stream& stream, const Visit& use);
  /// Of a view in pinned host memory: `stream` waits until transfers so far are over.
  void wait_for_host(Stream& stream) const;
  /// Copies pieces that cover `view`, in host memory that later work of `stream` may read, to the
  /// device as work of `stream`, and calls use(begin, values) to submit work of the same stream on
  /// each. The values are of another type than fp32.
  void upload(const View& view, Stream& stream, const Visit& use);

  /// Writes what is left to write, and forgets both tiles. Blocks the host if there is any.
  void settle();

  /// For views of memory only.
  HostAccess& memory() { return memory_; }

 private:
  /// Writes the host's tile, if it was changed.
  void flush();
  void visit_away(const View& view, const Visit& visit, bool write);
  void copy_from_host(const View& from, const View& to, Stream& stream);
  void copy_from_file(const View& from, const View& to, Stream& stream);
  View tile_part(const View& rest, bool write);
  void complete();
  void transfer(bool write, const View& there, const View& window);

  Device& device_;
  StateHome& home_;
  HostAccess memory_;
  View host_tile_;          // of the file; empty: none
  std::int64_t known_ = 0;  // bytes of it that are in its memory, from its begin on
  bool changed_ = false;
  View copy_tile_;  // of the file: there once the transfer stream has run what is submitted
  Stream* uploading_ = nullptr;  // the last one to use the device's tile
  Event uploaded_;
};

}  // namespace zero
