// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "tiers/tier_file.h"
#include "tiers/window_memory.h"

namespace zero {

/// What reading blocks took.
struct BlockReads {
  std::int64_t pass_bytes = 0;  ///< that each pass reads, in whole blocks of the disk
  std::int64_t bytes = 0;       ///< that were read
  double seconds = 0;           ///< during which they were
};

/// The shards of all blocks in a file (TierFile), and slots of host memory, a shard each, into
/// which they are read ahead of use by the transfer stream. Blocks are used in order, pass after
/// pass; the first of the next pass are read while the last of this one are used. States: made,
/// open(), stored, then used. One host thread calls it.
class BlockFile {
 public:
  struct Size {
    std::int64_t blocks = 0;
    std::int64_t bytes = 0;  ///< of a block's shard; 0: nothing is in the file, and none is made
    std::int64_t slots = 2;
  };
  static constexpr const char* kLabel = "slots of blocks";  ///< of their memory
  /// Allocates the slots (MemoryClass::staging). Throws zero::Error unless the device computes in
  /// host memory. `device` must outlive this.
  BlockFile(Device& device, const TierFileOptions& options, const Size& size);
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;

  /// Makes the file. Throws zero::Error on this rank alone: callers agree.
  void open();
  /// Has `fill` write block `i`, each once, to a slot, which is written to the file while the next
  /// block is filled.
  void store(std::int64_t i, const std::function<void(const View& shard)>& fill);
  /// Waits until all that was stored is in the file, or failure() tells.
  void finish_storing();

  /// Starts the reads that slots are free for.
  void fetch();
  /// The shard of block `i`, for work that is submitted to `user` until release(). Throws
  /// zero::Error unless the block is next in order.
  View use(std::int64_t i, Stream& user);
  /// Frees the slot behind the work of `user`. Starts no read.
  void release(Stream& user) noexcept;

  /// As TierFile::failure(): shards are anything then. Of a use, all failures that it met are known
  /// once its work is over.
  std::string failure() const { return file_.failure(); }
  /// Of reads that are over. Any thread.
  BlockReads reads() const;

 private:
  struct Slot {
    View shard{};
    Event ready{};     // read, or written
    Event released{};  // by its last user
  };
  /// Of the transfer stream, whose work it outlives.
  class Clock;
  Slot& slot(std::int64_t number) {
    return slots_[static_cast<std::size_t>(number % std::ssize(slots_))];
  }

  Device& device_;
  const Size size_;
  WindowMemory memory_;
  std::vector<Slot> slots_;
  std::vector<View> blocks_;  // ranges of the file
  std::shared_ptr<Clock> clock_;
  TierFile file_;  // behind its windows: it waits for transfers
  // Uses of blocks since the start, in order.
  std::int64_t used_ = 0;
  std::int64_t fetched_ = 0;
};

}  // namespace zero
