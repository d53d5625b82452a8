// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "tiers/tier.h"

namespace zero {

/// Host memory for the windows of a TierFile, aligned as direct transfers need it: the host aligns
/// small buffers to less. Charged to MemoryClass::staging, a block for the alignment included.
class WindowMemory {
 public:
  WindowMemory() = default;
  /// `bytes` >= 0, which is rounded up to whole blocks (TierFile::kBlock).
  WindowMemory(Device& device, std::int64_t bytes, std::string_view label);

  /// The bytes (DType::u8), from an address that is a multiple of TierFile::kBlock.
  const View& view() const { return view_; }

 private:
  Buffer buffer_;
  View view_;
};

/// The part of a rank's values that lives in a file below its memory. Ranges are reserved as views
/// that have count and dtype as any other, but addresses that belong to nothing: only this class
/// reads and writes them, in windows of host memory, by work of the device's transfer stream. The
/// file has no name, so nothing is left behind however the process ends. States: reserving
/// (reserve()), then open (start_read(), start_write(), finish()). Used by the device's host
/// thread. No failure of the disk is thrown once the file is open, since other ranks may wait for
/// this one: the first failure is kept (failure()), later transfers do nothing, and windows then
/// hold anything. Destruction waits for the transfer stream, and never throws.
class TierFile {
 public:
  /// Ranges begin at multiples of this many bytes of the file and have whole blocks. What begins
  /// and ends with blocks, in windows likewise, is transferred past the page cache.
  static constexpr std::int64_t kBlock = Device::kFileBlock;
  using Ticket = std::uint64_t;

  /// `device` must outlive this. On a planning device ranges are charged, and nothing else happens.
  TierFile(Device& device, TierFileOptions options);
  ~TierFile();
  TierFile(const TierFile&) = delete;
  TierFile& operator=(const TierFile&) = delete;

  /// A range of `count` elements, zeros until written, as a view of the device. Its whole blocks
  /// are charged to the device's file_ledger() until destruction. Zero elements: an empty view,
  /// which no file holds.
  View reserve(std::int64_t count, DType dtype, MemoryClass memory_class, std::string_view label);
  /// The bytes of all ranges so far: of the file.
  std::int64_t bytes() const { return bytes_; }
  const TierFileOptions& options() const { return options_; }

  /// Makes the file of bytes(), once. All transfers are to and from `windows`, host memory
  /// (WindowMemory), which must outlive this and is registered with the system if that is
  /// possible. Throws zero::Error naming folder, bytes and reason, on this rank alone: callers
  /// agree.
  void open(const View& windows);

  /// Whether a view is of a range of this file, and must not be dereferenced.
  bool holds(const View& view) const;
  /// The bytes (DType::u8) of the range that holds `view`, from the multiple of `grain` bytes
  /// before its begin to the one after its end, or to the range's last block. `grain`: a multiple
  /// of kBlock; grains are counted from the range's begin.
  View around(const View& view, std::int64_t grain = kBlock) const;

  /// Starts to fill `to`, in the windows, from `from`, in a range, of equal bytes. Work of the
  /// transfer stream that waits for the disk only while the queue is full, or while a transfer that
  /// meets the same blocks is in flight: a read sees the writes that started before it. If `from`
  /// ends with its range, the rest of the last block moves too, and the windows must have it behind
  /// `to`. `to` belongs to the transfer until finish().
  Ticket start_read(const View& from, const View& to);
  /// Starts to write `from`, in the windows, to `to`, in a range; likewise.
  Ticket start_write(const View& from, const View& to);
  /// Work of the transfer stream that blocks it until the transfer is over, failed or not. Once
  /// for each ticket.
  void finish(Ticket ticket);

  /// Why a transfer failed, with folder, offset and reason; empty: none has. Any thread.
  std::string failure() const;

 private:
  enum class Kind : std::uint8_t { read, write };
  class Transfers;
  struct Range {
    Buffer blocks;           // its address and its whole blocks
    std::int64_t bytes = 0;  // of its elements
    std::int64_t begin = 0;  // in the file
    /// The distance of the view's first byte from that of the range.
    std::int64_t distance(const View& view) const;
  };

  /// The range that holds the view; null: none.
  const Range* find(const View& view) const;
  /// The same; throws zero::Error if there is none.
  const Range& range_of(const View& view) const;
  Ticket start(Kind kind, const View& view, const View& memory);

  Device& device_;
  TierFileOptions options_;
  std::vector<Range> ranges_;  // by address, ascending
  std::int64_t bytes_ = 0;
  View windows_;
  bool open_ = false;
  Ticket last_ = 0;
  std::unique_ptr<Transfers> transfers_;  // null: none can start (a planning device)
};

}  // namespace zero
