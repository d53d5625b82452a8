// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

class Device;

/// The activations of a block that backward reads, in the order in which forward computes them. A
/// plan may have them computed again instead of kept.
enum class BlockTensor : std::uint8_t {
  qkv,       ///< q, k and v, after any rotation; before any norms of heads
  attended,  ///< the output of attention, before its projection
  middle,    ///< the residual stream between attention and MLP
  hidden,    ///< the MLP's first product, before the activation
};
inline constexpr std::array kBlockTensors{BlockTensor::qkv, BlockTensor::attended,
                                          BlockTensor::middle, BlockTensor::hidden};
/// "qkv", "attended", "middle", "hidden".
std::string_view name_of(BlockTensor tensor);

/// What backward computes again for one block.
struct BlockRecompute {
  bool qkv = false;
  bool attended = false;
  bool middle = false;
  bool hidden = false;
  bool input = false;  ///< by the forward of the block before, of the same block group

  static BlockRecompute all() { return {true, true, true, true, false}; }
  bool has(BlockTensor tensor) const;
  void set(BlockTensor tensor);
  bool any() const { return qkv || attended || middle || hidden; }
  /// Whether the block is computed again from its input.
  bool whole() const { return qkv && attended && middle && hidden; }
  friend bool operator==(const BlockRecompute&, const BlockRecompute&) = default;
};

/// What backward reads as the outputs of a block's norms and of GELU, which one pass computes from
/// the block's tensors. On a CPU the values are the same. A GPU that takes GELU into the product
/// before it computes GELU before its operand is rounded: an output computed again from the rounded
/// operand has other last bits than forward's.
enum class BlockOutputs : std::uint8_t {
  of_device,  ///< kept on a device with a GPU's pieces (kGpuPieces), else computed again
  kept,       ///< forward's own; where their operands are computed again, those of that pass
  again,      ///< computed once more where backward reads them
};

/// Which activations a decoder's blocks keep from forward to backward, and which backward computes
/// again; a pure value. No value of a run depends on `blocks`, to the bit. A block group is a run
/// of consecutive blocks that keep one input together: its first block's. A block whose input is
/// kept begins a group, so a block alone is a group of one.
struct RecomputePlan {
  std::vector<BlockRecompute> blocks{};  ///< empty: every block keeps everything
  /// Without sequence parallelism each rank of a tensor group keeps its share of the inputs of
  /// blocks that are computed again whole; backward all-gathers them.
  bool partition_inputs = false;
  /// Inputs of blocks that are computed again whole, or shares of them, are in pinned host memory
  /// from the block's forward on until its backward is near; on a GPU only.
  bool inputs_on_host = false;
  BlockOutputs outputs = BlockOutputs::of_device;

  /// The same plan with the device's choice in place of BlockOutputs::of_device, and inputs in host
  /// memory only if the device has memory of its own.
  RecomputePlan on(const Device& device) const;

  /// Every `interval`-th block, from block 0 on, keeps its input alone; the others keep everything.
  static RecomputePlan full(std::int64_t layers, std::int64_t interval = 1);
  /// `groups` block groups, as even as possible, longer ones first.
  static RecomputePlan grouped(std::int64_t layers, std::int64_t groups);
  /// Every block computes `tensors` again and keeps the rest.
  static RecomputePlan selective(std::int64_t layers, const std::vector<BlockTensor>& tensors);

  /// Throws zero::Error unless there is an entry for each of `layers` blocks or none, and every
  /// block that computes middle again, or is in a block group of several, is computed again whole.
  void check(std::int64_t layers) const;
  BlockRecompute block(std::int64_t i) const {
    return blocks.empty() ? BlockRecompute() : blocks[static_cast<std::size_t>(i)];
  }
  /// The first and the last block of block i's block group.
  std::int64_t first_of_group(std::int64_t i) const;
  std::int64_t last_of_group(std::int64_t i) const;
  bool any() const;
  /// Whether the block keeps its input and nothing else of a row's width.
  bool keeps_input_alone(std::int64_t i) const { return block(i).whole() && !block(i).input; }
  /// "blocks 0 to 11: qkv, attended, middle, hidden"; ranges of equal blocks, "; " between them.
  /// "nothing" if every block keeps everything.
  std::string text() const;
};

}  // namespace zero
