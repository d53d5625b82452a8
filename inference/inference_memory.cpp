// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/inference_memory.h"

#include <algorithm>
#include <memory>

#include "base/checked_math.h"
#include "collectives/backends.h"
#include "collectives/mesh.h"
#include "inference/inference_model.h"
#include "ops/ops.h"

namespace zero {
namespace {

InferenceMemory memory_of(InferenceModel& model) {
  const MemorySnapshot memory = model.device().ledger().snapshot();
  const KeyValueCache& cache = model.cache();
  InferenceMemory all{.weights = memory.current_of(MemoryClass::parameters),
                      .windows = memory.current_of(MemoryClass::gathered),
                      .file = model.device().file_ledger().snapshot().total,
                      .cache = memory.labels.at("activations/key_value_cache"),
                      .device = model.device().device_bytes(),
                      .blocks = cache.total_blocks(),
                      .block_tokens = cache.shape().block_tokens,
                      .slots = cache.slots(),
                      .longest = cache.tokens()};
  const auto slots = memory.labels.find(std::string("staging/") + BlockFile::kLabel);
  if (slots != memory.labels.end()) all.windows += slots->second;
  if (cache.usage().host_total > 0) {
    all.host_cache = memory.labels.at("activations/host_key_value_cache");
  }
  all.activations = memory.current_of(MemoryClass::activations) - all.cache - all.host_cache;
  std::int64_t total = 0;
  for (const auto& [label, bytes] : memory.labels) total += bytes;
  all.exchange = total - all.weights - all.windows - all.cache - all.host_cache - all.activations;
  return all;
}

}  // namespace

std::int64_t InferenceMemory::total() const {
  return weights + windows + cache + host_cache + activations + exchange;
}

std::int64_t InferenceMemory::of_device(DeviceKind kind) const {
  return kind == DeviceKind::cpu ? total() : device.in_pages();
}

std::int64_t InferenceMemory::longest_at_once() const {
  return std::min(slots, blocks / div_ceil(longest, block_tokens));
}

std::unique_ptr<Device> plan_device(DeviceKind kind, int threads) {
  return kind == DeviceKind::cpu ? planning::open(threads) : plan_gpu();
}

InferenceMemory plan_inference_memory(const DecoderShape& decoder, const InferenceOptions& options,
                                      const PlannedRanks& ranks, int rank) {
  const auto device = plan_device(ranks.device, ranks.threads);
  const MeshShape& shape = ranks.shape;
  const int count = shape.shard * shape.tensor;
  std::unique_ptr<Communicator> world;
  std::optional<Mesh> mesh;
  if (count > 1) {
    world = planning::communicator(rank, count, BackendKind::host);
    mesh.emplace(*world, MeshShape{.shard = shape.shard, .tensor = shape.tensor});
  }
  InferenceModel model(*device, decoder, options, mesh ? &*mesh : nullptr);
  return memory_of(model);
}

std::optional<std::int64_t> blocks_within(
    std::int64_t limit, std::int64_t least, std::int64_t most,
    const std::function<BytesOfBlocks(std::int64_t blocks)>& plan) {
  const BytesOfBlocks with_least = plan(least);
  if (with_least.all > limit) return std::nullopt;
  if (most <= least) return least;
  const std::int64_t block = plan(least + 1).cache - with_least.cache;
  const auto fits = [&](std::int64_t blocks) { return plan(blocks).all <= limit; };
  const std::int64_t straight = std::min(most, least + (limit - with_least.all) / block);
  if (fits(straight) && (straight == most || !fits(straight + 1))) return straight;
  // A GPU's pages, of which the last are not full.
  constexpr std::int64_t kPages = kMemoryClasses * DeviceBytes::kPage;
  std::int64_t fit = least;
  std::int64_t more = std::min(most, straight + kPages / block) + 1;
  while (fit + 1 < more) {
    const std::int64_t middle = fit + (more - fit) / 2;
    (fits(middle) ? fit : more) = middle;
  }
  return fit;
}

std::int64_t requests_within(const DecoderShape& decoder, const InferenceOptions& options,
                             const PlannedRanks& ranks, std::int64_t limit, std::int64_t most) {
  const auto fits = [&](std::int64_t requests) {
    InferenceOptions with = options;
    with.requests = requests;
    with.cache_tokens = 0;  // of all
    with.logit_rows = 0;
    with.rows = std::max(with.rows, requests);
    return plan_inference_memory(decoder, with, ranks).of_device(ranks.device) <= limit;
  };
  std::int64_t fit = 0;
  for (std::int64_t more = most + 1; fit + 1 < more;) {
    const std::int64_t middle = fit + (more - fit) / 2;
    (fits(middle) ? fit : more) = middle;
  }
  return fit;
}

}  // namespace zero
