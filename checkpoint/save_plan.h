// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "checkpoint/owned_runs.h"
#include "collectives/slices.h"
#include "weights/checkpoint_layout.h"

namespace zero {

/// fp32 elements of a whole block.
inline constexpr std::int64_t kBlockElements = kBlockBytes / std::int64_t{sizeof(float)};

/// Which rank writes each block of a checkpoint and in which round, and the elements that ranks
/// send each other for it. A block is written by the rank that owns most of its elements, the
/// lowest of several; replicas deal the blocks: replica r writes those of numbers n with
/// n % replicas == r. In a round every rank writes at most `per_round` blocks, and sends and
/// receives at most the elements of `exchanged`. Pure arithmetic, equal on all ranks of a replica;
/// a round is worked out when it is asked for.
class SavePlan {
 public:
  struct Dealing {
    int replica = 0;  ///< this rank's
    int replicas = 1;
    std::int64_t per_round = 4;  ///< blocks
    std::int64_t exchanged = 4;  ///< blocks, at least 1
    /// fp32 elements of memory for each block, at least those of the largest.
    std::int64_t block_elements = kBlockElements;
  };
  /// `layout` must outlive the plan. numbers[i] is the tensor of `owned` that holds the elements of
  /// layout.tensors()[i]. Throws zero::Error naming file and offset of a block unless each of its
  /// elements has one owner.
  SavePlan(const CheckpointLayout& layout, std::vector<std::size_t> numbers, OwnedRuns owned,
           const Dealing& dealing);

  /// Rounds of the replica that has most: the same on all ranks of the world.
  std::int64_t rounds() const { return rounds_; }
  /// The rank of the replica that writes the block.
  int writer(std::int64_t block) const { return writers_[static_cast<std::size_t>(block)]; }
  /// Whether ranks of this replica send each other elements in a round.
  bool exchanges(std::int64_t round) const;

  /// Elements of a tensor and their place in a buffer of fp32.
  struct Part {
    std::size_t tensor = 0;  ///< of OwnedRuns
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::int64_t at = 0;
  };
  /// Elements of the receive buffer and their place in the blocks.
  struct FileOffset {
    std::int64_t from = 0;
    std::int64_t count = 0;
    std::int64_t at = 0;
  };
  /// One rank's part in a round: the i-th block that it writes starts at element
  /// i * Dealing::block_elements of its blocks.
  struct Round {
    std::vector<std::int64_t> blocks;  ///< that it writes
    std::vector<Part> own;             ///< into its blocks
    std::vector<Part> pack;            ///< into the send buffer
    std::vector<Slices::Range> send;   ///< of the send buffer: one per rank
    std::vector<Slices::Range> receive;
    std::vector<FileOffset> place;
  };
  /// Rank `rank` of this replica in round `round`; nothing to do if the replica has fewer rounds.
  Round of(std::int64_t round, int rank) const;

 private:
  struct Share {
    int rank = 0;
    std::int64_t count = 0;
  };
  class Dealer;

  std::vector<Share> shares(std::int64_t block) const;
  int find_writer(std::int64_t block) const;
  void for_each_run(std::int64_t block,
                    const std::function<void(int rank, const Part& part)>& visit) const;

  const CheckpointLayout& layout_;
  std::vector<std::size_t> numbers_;
  OwnedRuns owned_;
  std::int64_t block_elements_;
  std::int64_t rounds_ = 0;
  std::vector<int> writers_;
  /// The blocks of this replica in the order of (round, writer, number); round r ends before
  /// order_[ends_[r]].
  std::vector<std::int64_t> order_;
  std::vector<std::size_t> ends_;
  std::vector<char> exchanges_;
};

}  // namespace zero
