// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_options.h"
#include "checkpoint/rank_statuses.h"
#include "checkpoint/state_tensors.h"
#include "collectives/communicator.h"
#include "device/buffer.h"
#include "weights/checkpoint_reader.h"
#include "weights/damaged_checkpoint.h"

namespace zero {

/// Reads the blocks of a checkpoint once a host, those that a rank of the host needs: the ranks of
/// a host deal the blocks of a round, read and verify their own, and share them, in memory that all
/// map if their communicator has such. The disk reads the blocks of the next round while those of
/// one are verified and used. Its memory does not grow with the checkpoint.
class HostBlocks {
 public:
  /// On the ranks of `world`. `blocks`: of the largest checkpoint expected; sizes the memory of a
  /// round. Larger ones are read too. Collective over the world.
  HostBlocks(Communicator& world, Device& device, files::FileSystem& disk, std::int64_t blocks);
  /// Charges `device`, a planning device, with the memory of one.
  static void plan(Device& device, std::int64_t blocks);

  /// The content of block `number`, aligned to fp32.
  using Use = std::function<void(std::int64_t number, std::span<std::byte> bytes)>;
  /// Whether this rank uses block `number`.
  using Needs = std::function<bool(std::int64_t number)>;
  /// Calls `use` for every block of `reader` that this rank needs, in order. If a rank cannot read
  /// or use one, all ranks of the host end early. Gives this rank's failure, if it had one.
  /// Collective over the ranks of the host.
  CheckpointFailure read(CheckpointReader& reader, const Needs& needs, const Use& use);

 private:
  struct Reading {
    std::size_t at = 0;  // in needed_
    files::TransferQueue::Ticket ticket = 0;
  };

  std::int64_t per_round() const { return readers_ * each_; }
  std::vector<Reading>& reading_of(std::int64_t round) {
    return reading_[static_cast<std::size_t>(round) % reading_.size()];
  }
  void find_needed(const CheckpointReader& reader, const Needs& needs);
  /// The place in the memory of its round of the block at `at` of needed_.
  std::span<std::byte> place(const CheckpointReader& reader, std::size_t at) const;
  void start(CheckpointReader& reader, std::int64_t round);
  void verify(CheckpointReader& reader, std::int64_t round);
  bool share(std::int64_t round);

  Device& device_;
  std::unique_ptr<Communicator> split_;  // of the world, if that has several ranks
  Communicator& host_;
  std::int64_t held_;     // blocks of a round
  std::int64_t readers_;  // ranks of the host that read
  std::int64_t each_;     // blocks that one of them reads in a round
  SharedBuffer memory_;
  std::vector<std::int32_t> mine_;    // of each block, whether this rank needs it
  std::vector<std::int64_t> needed_;  // by a rank of the host, ascending
  std::map<std::size_t, std::unique_ptr<files::InputFile>> files_;
  std::unique_ptr<files::TransferQueue> queue_;
  std::array<std::vector<Reading>, 2> reading_;  // of a round and the next
  CheckpointFailure failure_;
};

/// Loads checkpoints into an engine: Checkpointer::load(). No save may be in flight.
class CheckpointLoader {
 public:
  /// `blocks`: those of a checkpoint that this engine would save; decide the memory of a load.
  CheckpointLoader(const StateSource& of, const CheckpointOptions& options, std::int64_t blocks);

  std::optional<Resumed> load(const std::string& which, const AcceptCheckpoint& accept);
  const std::vector<std::string>& passed_over() const { return passed_over_; }

 private:
  struct Candidate {
    std::string path;
    CheckpointFailure fault;  // why the checkpoint cannot be loaded, if a reason is known
    bool partial = false;     // never was a checkpoint
  };

  std::vector<Candidate> candidates(const std::string& which);
  std::vector<Candidate> find(const std::string& which) const;
  CheckpointFailure open(const std::string& path);
  void check(const AcceptCheckpoint& accept);
  CheckpointFailure read(HostBlocks& blocks);
  void restore();
  [[noreturn]] void refuse_to_begin_anew() const;

  Engine& engine_;
  files::FileSystem& disk_;
  std::string folder_;
  NameMap names_;
  RankStatuses statuses_;
  StateTensors tensors_;
  std::int64_t blocks_;
  std::vector<std::string> passed_over_;

  // Of the checkpoint that is tried.
  std::unique_ptr<CheckpointReader> reader_;
  std::optional<CheckpointLayout> layout_;
};

}  // namespace zero
