// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "architecture/decoder_shape.h"
#include "collectives/communicator.h"
#include "collectives/slices.h"
#include "device/device.h"
#include "ops/inference_ops.h"
#include "tiers/tier_file.h"

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

/// What a rank keeps of each block's matrices (BlockLayout): in memory, or in a BlockFile, if there
/// is a folder for one. Used as a BlockFile is; in memory all calls but load() cost nothing.
class BlockShards {
 public:
  /// Allocates the shards (MemoryClass::parameters), from `group` if its ranks gather them, else,
  /// where it is null, from the device; or the slots of a file. References must outlive this.
  BlockShards(Device& device, Communicator* group, const BlockFile::Size& size,
              const TierFileOptions& file);

  bool in_file() const { return file_.has_value(); }
  /// As BlockFile::open(); in memory nothing.
  void open();
  /// Has `fill` write block `i`.
  void load(std::int64_t i, const std::function<void(const View& shard)>& fill);
  void finish_loading();

  void fetch();
  View use(std::int64_t i, Stream& user);
  void release(Stream& user) noexcept;

  std::string failure() const { return file_ ? file_->failure() : std::string(); }
  BlockReads reads() const { return file_ ? file_->reads() : BlockReads{}; }

 private:
  std::vector<Buffer> kept_;  // of each block
  std::optional<BlockFile> file_;
};

/// Where the matrices of a block lie in memory: whole in a window and, in a rank's shard, the
/// columns that the rank keeps of each, as even a share as groups of columns (WeightCut) allow. On
/// one rank both are the same. All blocks are alike.
class BlockLayout {
 public:
  static constexpr std::array kMatrices = {BlockSlot::qkv_weight, BlockSlot::projection_weight,
                                           BlockSlot::hidden_weight, BlockSlot::output_weight};
  using Shapes = std::array<WeightShape, kMatrices.size()>;

  BlockLayout(const InferenceOps& ops, const Shapes& shapes, int rank, int ranks);

  struct Matrix {
    WeightShape shape;
    WeightShape kept;             ///< this rank's columns, a stored weight of its own
    std::int64_t first = 0;       ///< of these columns in the whole
    std::int64_t at = 0;          ///< bytes from the window's start
    std::int64_t bytes = 0;       ///< in the window
    std::int64_t kept_at = 0;     ///< bytes from the shard's start
    std::int64_t kept_bytes = 0;  ///< in the shard
    WeightCut cut;
  };
  const std::array<Matrix, kMatrices.size()>& matrices() const { return matrices_; }
  std::int64_t window_bytes() const { return window_bytes_; }
  std::int64_t shard_bytes() const { return shard_bytes_; }

  /// What ranks gather to make a block whole: mine is adjacent in the shard.
  struct Gather {
    View mine;
    Slices full;
  };
  std::vector<Gather> gathers(const View& shard, const View& window) const;

 private:
  /// Groups of columns of one matrix that a rank keeps.
  Slices::Range groups(const Matrix& matrix, int rank) const;

  int rank_;
  int ranks_;
  std::array<Matrix, kMatrices.size()> matrices_;
  std::int64_t window_bytes_ = 0;
  std::int64_t shard_bytes_ = 0;
};

/// Gathers the matrices of blocks ahead of their use, where each rank keeps a shard, in memory or
/// in a file, which is read ahead of the gather: ZeRO inference (Aminabadi et al. 2022). Blocks are
/// used in order, pass after pass; the first blocks of the next pass are gathered while the last of
/// this one compute. Windows are memory that the ranks of a host share, if they can share any. All
/// ranks make the same calls.
class BlockWindows {
 public:
  struct Size {
    std::int64_t blocks = 0;
    std::int64_t windows = 2;  ///< blocks that are whole at a time
  };
  /// Allocates the windows, charged to gathered. Collective over `group`. All references must
  /// outlive this; `shards` must be loaded at the first prefetch().
  BlockWindows(Device& device, Communicator& group, const BlockLayout& layout, const Size& size,
               BlockShards& shards);
  /// Waits for gathers under way.
  ~BlockWindows();
  BlockWindows(const BlockWindows&) = delete;
  BlockWindows& operator=(const BlockWindows&) = delete;

  /// Submits the gathers that windows are free for to the communication stream.
  void prefetch();
  /// The window of block `i`, behind whose gather compute goes on. Throws zero::Error unless the
  /// block is next in order.
  View use(std::int64_t i);
  /// Call after the last compute that uses the block. Starts no gather.
  void release() noexcept;

 private:
  struct Window {
    View memory;
    Event gathered{};
    Event released{};
  };
  Window& window(std::int64_t use) {
    return windows_[static_cast<std::size_t>(use % std::ssize(windows_))];
  }

  Device& device_;
  Communicator& group_;
  const BlockLayout& layout_;
  std::int64_t blocks_;
  BlockShards& shards_;
  Buffer memory_;
  std::vector<Window> windows_;
  // Uses of blocks since the start, in order.
  std::int64_t used_ = 0;
  std::int64_t gathered_ = 0;
};

}  // namespace zero
