// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "collectives/mesh_shape.h"
#include "device/memory_ledger.h"
#include "inference/inference_options.h"

namespace zero {

class Device;
enum class DeviceKind : std::uint8_t;

/// The ranks of a model, and what they compute on.
struct PlannedRanks {
  MeshShape shape{.replicate = 1, .shard = 1, .tensor = 1};
  int threads = 1;      ///< of each
  DeviceKind device{};  ///< DeviceKind::cpu
};

/// Bytes of a rank of an InferenceModel, which are taken once, when it is constructed.
struct InferenceMemory {
  std::int64_t weights = 0;      ///< what the rank keeps: its shard of matrices, tables, vectors
  std::int64_t windows = 0;      ///< gathered blocks, if ranks share weights; slots of a file's
  std::int64_t file = 0;         ///< of its file of blocks: not in memory, and not in total()
  std::int64_t cache = 0;        ///< keys and values
  std::int64_t host_cache = 0;   ///< blocks in host memory
  std::int64_t activations = 0;  ///< of the largest pass, with scratch of its operations
  std::int64_t exchange = 0;     ///< rows and logits that travel between ranks
  DeviceBytes device{};          ///< of a GPU, in blocks of its classes

  // The cache: its bytes are layers x blocks x (keys and values of block_tokens).
  std::int64_t blocks = 0;
  std::int64_t block_tokens = 0;
  std::int64_t slots = 0;
  std::int64_t longest = 0;  ///< tokens of a request, at most

  std::int64_t total() const;
  /// What a limit of the device's memory bounds: all; of a GPU, its pages.
  std::int64_t of_device(DeviceKind kind) const;
  /// Requests of the longest kind that the blocks hold at once.
  std::int64_t longest_at_once() const;
  friend bool operator==(const InferenceMemory&, const InferenceMemory&) = default;
};

/// A device without memory that stands for one of this kind in a plan.
std::unique_ptr<Device> plan_device(DeviceKind kind, int threads);

/// Constructs the model on a device that has no memory, as rank `rank` of shard x tensor (a
/// rank's number: shard index x tensor + tensor index): exact, to the byte, and without weights.
/// Throws zero::Error as InferenceModel does.
InferenceMemory plan_inference_memory(const DecoderShape& decoder, const InferenceOptions& options,
                                      const PlannedRanks& ranks, int rank = 0);

/// Bytes with so many cache blocks, all and those of the cache.
struct BytesOfBlocks {
  std::int64_t all = 0;
  std::int64_t cache = 0;
};
/// The most blocks of a cache, `least` to `most`, with which a plan takes at most `limit` bytes;
/// nothing if it takes more with `least`. `plan` is asked a few times.
std::optional<std::int64_t> blocks_within(
    std::int64_t limit, std::int64_t least, std::int64_t most,
    const std::function<BytesOfBlocks(std::int64_t blocks)>& plan);

/// The most requests of options.request_tokens tokens at once, up to `most`, with blocks for all of
/// them at their longest within `limit` bytes of a rank; 0 if there is no room for one.
std::int64_t requests_within(const DecoderShape& decoder, const InferenceOptions& options,
                             const PlannedRanks& ranks, std::int64_t limit,
                             std::int64_t most = InferenceOptions::kMostRows);

}  // namespace zero
