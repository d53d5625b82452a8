// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/model_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "collectives/backends.h"
#include "inference/inference_model.h"
#include "inference/model_folder.h"
#include "launch/generate/generate_flags.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

std::string size_text(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

}  // namespace

WeightFormat weight_format(const GenerateFlags& flags, const std::string& folder) {
  return flags.weights.empty() ? stored_format(folder) : weight_format_from_name(flags.weights);
}

PlannedModel plan_model(const std::string& folder, const InferenceOptions& options,
                        const PlannedRanks& ranks) {
  // A configuration that its files do not fit is refused before anything is as large as it says.
  const ModelFolder files(folder);
  files.check_format(options.weights);
  const auto device = plan_device(ranks.device, ranks.threads);
  const MeshShape& shape = ranks.shape;
  const int count = shape.shard * shape.tensor;
  std::unique_ptr<Communicator> world;
  std::optional<Mesh> mesh;
  if (count > 1) {
    world = planning::communicator(0, count, BackendKind::host);
    mesh.emplace(*world, MeshShape{.shard = shape.shard, .tensor = shape.tensor});
  }
  InferenceModel model(*device, files.shape(), files.with_groups(options), mesh ? &*mesh : nullptr);
  const KeyValueCache& cache = model.cache();
  const MemorySnapshot memory = device->ledger().snapshot();
  const std::int64_t cache_bytes = memory.labels.at("activations/key_value_cache");
  const std::int64_t host_blocks = cache.usage().host_total;
  const std::int64_t host_bytes =
      host_blocks == 0 ? 0 : memory.labels.at("activations/host_key_value_cache");
  const std::int64_t weights =
      memory.current_of(MemoryClass::parameters) + memory.current_of(MemoryClass::gathered);
  const std::int64_t activations = memory.current_of(MemoryClass::activations);
  const std::int64_t block = cache.shape().block_tokens;
  const auto parameters = static_cast<double>(files.shape().parameter_count());
  std::int64_t bytes = 0;
  for (const auto& [label, of_label] : memory.labels) bytes += of_label;
  return {
      bytes, ranks.device == DeviceKind::cpu ? bytes : host_bytes, device->device_bytes().arenas,
      fmt::format("model of {} parameters{}: weights {}, cache {} ({} blocks of {} tokens: {} "
                  "requests of {} tokens at once){}, activations {}\n",
                  count_text(parameters), count > 1 ? ", each rank" : "", size_text(weights),
                  size_text(cache_bytes), cache.total_blocks(), block,
                  std::min(cache.slots(), cache.total_blocks() / div_ceil(cache.tokens(), block)),
                  cache.tokens(),
                  host_blocks == 0 ? std::string()
                                   : fmt::format(", {} in host memory ({} blocks)",
                                                 size_text(host_bytes), host_blocks),
                  size_text(activations - cache_bytes - host_bytes))};
}

void check_memory(std::int64_t bytes, std::optional<std::int64_t> available,
                  const std::string& folder, const InferenceOptions& options,
                  const PlannedRanks& ranks) {
  if (!available || bytes <= *available) return;
  const WeightFormat stored = stored_format(folder);
  std::string help;
  for (const auto& [name, format] :
       {std::pair("int8", WeightFormat::int8), std::pair("nf4", WeightFormat::nf4)}) {
    if (stored != WeightFormat::plain || ranks.device != DeviceKind::cpu) break;
    InferenceOptions smaller = options;
    smaller.weights = format;
    const std::int64_t needed = plan_model(folder, smaller, ranks).bytes;
    if (needed < bytes) help += fmt::format("{} with --weights {}, ", size_text(needed), name);
  }
  fail(
      "out of memory before the start: {} are needed, and {} are available; {}fewer --requests, "
      "--cache-tokens, --host-cache-tokens or --max-tokens (at a terminal a smaller --context) "
      "less "
      "for the cache",
      size_text(bytes), size_text(*available), help);
}

}  // namespace zero
