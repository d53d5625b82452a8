// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint_options.h"
#include "checkpoint/save_plan.h"
#include "checkpoint/state_tensors.h"
#include "device/device_mirror.h"
#include "engine/engine.h"
#include "files/file_system.h"
#include "weights/checkpoint_layout.h"

namespace zero {

/// Runs work that may block for long, in order, on a thread that lives while there is some. Host
/// work of a CUDA stream may hold up that of all streams; such work is better here.
class BackgroundQueue {
 public:
  BackgroundQueue() = default;
  /// Waits for all work.
  ~BackgroundQueue() { join(); }
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  /// Adds work, which must not throw. Runs it at once where no thread can be made. Any thread.
  void add(std::function<void()> work);
  /// Blocks until no work is left. Not on the thread itself.
  void join() noexcept;

 private:
  void run() noexcept;

  std::mutex starting_;  // held while thread_ changes, but not by run()
  std::mutex mutex_;
  std::deque<std::function<void()>> work_;
  bool running_ = false;
  std::thread thread_;
};

/// The waits that order a BlockWriter's work on the three streams.
enum class WriteWait : std::uint8_t {
  sent_before_pack,        ///< compute packs elements again once those before them are sent
  pack_before_exchange,    ///< elements are sent once they are packed
  placed_before_exchange,  ///< elements are received once those before them are copied away
  exchange_before_place,   ///< received elements are copied once they are there
};

/// Writes the states of an engine into the files of a layout, all ranks together, each its blocks,
/// in rounds of constant memory: elements of other ranks' blocks are packed on the compute stream
/// and exchanged on the communication stream; on the transfer stream, blocks are put together in
/// one of a ring of slots, summed and handed to a queue; a thread of its own makes each file
/// durable and closes it behind this rank's last block. No disk error is thrown while other ranks
/// may wait: a rank whose disk fails, or whose states are not finite, goes on taking part, and says
/// so afterwards. Used by the engine's host thread. Waits for its work on destruction.
class BlockWriter {
 public:
  /// Allocates its memory, on a planning device too, where it does nothing else. Collective.
  BlockWriter(const StateSource& of, StateTensors tensors, CheckpointLayout layout,
              SaveStates states);
  ~BlockWriter();
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  const CheckpointLayout& layout() const { return layout_; }
  /// Equal on all ranks of the world.
  int rounds() const;
  /// Whether this rank writes blocks of a file.
  bool writes(std::size_t file) const { return writes_[file] > 0; }

  /// Begins to write: `files`, one for each file that this rank writes, null for the others.
  void begin(std::vector<std::unique_ptr<files::OutputFile>> files);
  /// Submits a round: each once, in order. Collective over the replica.
  void submit(int round);
  /// The point after the last read of the states of a unit, once all rounds are submitted.
  Event read(int unit) const;

  /// Whether all blocks of this rank are on the disk, or a write has failed. Never blocks.
  bool ended() const { return ended_; }
  /// Once it has ended: why this rank could not write; empty if it could.
  const std::string& failure() const { return failure_; }
  /// Makes failure() `why`, unless there is one.
  void fail_with(const std::string& why) noexcept;
  /// Blocks until no file is being made durable.
  void join() { side_.join(); }
  /// Waits for the last work on the files and closes those that are open. Only when it has ended.
  void close();
  /// Ends what begin() began before any round was submitted, and closes the files.
  void cancel();
  /// The checksums of all blocks, once all ranks have ended; int32 bits. Collective over the world.
  std::span<const std::uint32_t> sum_checksums(Communicator& world);

  /// For tests: leaves out one of the waits, and has two exchanges in flight, so that few rounds
  /// use their memory again.
  void skip(std::optional<WriteWait> wait) {
    skipped_ = wait;
    in_flight_ = std::min<std::size_t>(in_flight_, 2);
  }

 private:
  static constexpr std::int64_t kBlocksPerRound = 4;
  static constexpr std::int64_t kBlocksExchanged = 1;  // of a round
  static constexpr std::int64_t kSlots = 3;
  /// Many and small: the compute stream waits only in a rank that is this far ahead of the slowest.
  static constexpr std::int64_t kExchanges = 16;

  /// Memory of one round in flight, of those whose elements are exchanged.
  struct Exchange {
    Buffer send;     // of the device
    Buffer receive;  // of the host
    DeviceMirror mirror;
    Event sent;
    Event placed;
  };
  /// A block that the queue writes.
  struct Writing {
    files::TransferQueue::Ticket ticket = 0;
    std::size_t file = 0;
  };
  struct Slot {
    View memory;
    std::vector<Writing> writing;
  };

  void allocate();
  std::int64_t block_elements() const { return block_bytes_ / std::int64_t{sizeof(float)}; }
  Exchange& exchange_of(std::int64_t round) {
    return exchanges_[static_cast<std::size_t>(round) % in_flight_];
  }
  void exchange(std::int64_t round, const SavePlan::Round& part);
  void fill(std::int64_t round, const SavePlan::Round& part);
  void wait(Stream& stream, const Event& event, WriteWait site) const;
  void attempt(const std::function<void()>& work) noexcept;
  void free_slot(Slot& slot) noexcept;
  void write_blocks(Slot& slot, std::span<const std::int64_t> blocks);
  void check_finite(const Block& block, std::span<const std::byte> bytes) const;
  void finish(std::size_t file);
  void end() noexcept;

  Engine& engine_;
  Device& device_;
  Communicator replica_;  // counts no traffic of a step
  files::FileSystem& disk_;
  StateTensors tensors_;
  CheckpointLayout layout_;
  SaveStates states_;
  std::optional<SavePlan> plan_;      // none on a planning device
  std::vector<std::int64_t> writes_;  // of each file, this rank's blocks
  std::int64_t per_round_ = 0;        // blocks
  // Memory is for what the layout has: its blocks bound the rounds, its largest block all others.
  std::int64_t block_bytes_ = 0;
  Buffer staging_;
  Buffer checksums_;  // i32, of all blocks
  std::vector<Slot> slots_;
  std::vector<Exchange> exchanges_;
  std::size_t in_flight_ = 0;
  std::vector<Event> reads_;  // per unit
  std::optional<WriteWait> skipped_;

  // Used by host work of the transfer stream, and by the host thread when that has ended; a file
  // without blocks to write, by the side thread.
  std::vector<std::unique_ptr<files::OutputFile>> files_;
  std::vector<std::int64_t> left_;  // of each file, blocks that are not written yet
  std::unique_ptr<files::TransferQueue> queue_;
  std::mutex failing_;
  std::string failure_;
  std::atomic<bool> ended_{true};
  BackgroundQueue side_;  // syncs and closes files
};

}  // namespace zero
