// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "collectives/nccl/options.h"
#include "collectives/slices.h"
#include "device/device.h"

/// The messages of an exact reduction, and the GPU memory that a communicator takes, computed
/// before any library call: functions of sizes and world alone, equal on every rank of a run and in
/// plans.
namespace zero::nccl {

/// The method by which slices reach their owners in an exact reduction.
///   direct   every rank sends each peer its slice, and the peer sums by the tree: N - 1 messages
///   halving  log2 N rounds. In round k ranks r and r ^ 2^k exchange half of the slices that they
///            still sum; the tree over a power of two of ranks splits at the same places, and
///            sums travel in fp32, so the result has the tree's bits
enum class Way { direct, halving };

/// Halving sends more bytes in bf16 but fewer messages, so it is for many ranks with small slices.
inline constexpr int kHalvingRanks = 64;
inline constexpr std::int64_t kHalvingBytes = std::int64_t{32} << 10;
Way way_of(const Slices& full);

/// One rank's part in a round of halving. A slice is named by its owner.
struct HalvingRound {
  int partner = 0;
  std::vector<int> keeps;  ///< slices whose values, its own and the partner's, it sums; ascending
  std::vector<int> gives;  ///< slices it sends to the partner
};
/// `world` is a power of two from 2 on. In the last round the rank keeps its own slice alone.
std::vector<HalvingRound> halving(int rank, int world);

/// The workspace of halving: places for sums in fp32 and for received values in the slices' dtype.
/// Each slice has a place of `stride` elements.
struct HalvingRoom {
  std::int64_t places = 0;  ///< half the world
  std::int64_t stride = 0;
  std::int64_t sums_bytes = 0;      ///< places x stride in fp32, first
  std::int64_t received_bytes = 0;  ///< behind them: places x stride in the slices' dtype
};
HalvingRoom halving_room(const Slices& full);

/// Elements of workspace that reduce_scatter needs for `full`.
std::int64_t workspace(const Slices& full, Sums sums);

/// Whether the slices are of equal size and adjacent in rank order, as NCCL's collectives require.
bool are_one_block(const Slices& full);

/// Bytes of a communicator's scratch memory.
inline constexpr std::int64_t kScratch = std::int64_t{8} << 20;

/// Allocates the scratch memory of a group of `size` ranks; empty for one rank.
Buffer take_scratch(Device& device, int size);

/// The least bytes of a buffer from NCCL's allocator, which gives whole pages of 2 MiB: the shard
/// of a small block over many ranks is less than a page, and sent faster from a window all the
/// same.
inline constexpr std::int64_t kLeastWindow = DeviceBytes::kPage / 8;

/// Whether such a group takes a buffer from NCCL's allocator.
bool gives_memory(int size, std::int64_t count, DType dtype);

}  // namespace zero::nccl
