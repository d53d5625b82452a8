// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/model_memory.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "inference/model_folder.h"
#include "launch/process/quantity.h"

namespace zero {

PlannedModel plan_model(const std::string& folder, const InferenceOptions& options,
                        const PlannedRanks& ranks) {
  // A configuration that its files do not fit is refused before anything is as large as it says.
  const ModelFolder files(folder);
  files.check_format(options.weights, options.keep);
  return planned_model(files.shape(),
                       plan_inference_memory(files.shape(), files.with_groups(options), ranks),
                       ranks);
}

PlannedModel planned_model(const DecoderShape& decoder, const InferenceMemory& memory,
                           const PlannedRanks& ranks) {
  const std::int64_t bytes = memory.total();
  const std::int64_t host_blocks =
      memory.host_cache == 0 ? 0 : memory.host_cache / (memory.cache / memory.blocks);
  return {
      bytes, ranks.device == DeviceKind::cpu ? bytes : memory.host_cache, memory.device.arenas,
      fmt::format("model of {} parameters{}: weights {}{}, cache {} ({} of {} tokens: {} of {} "
                  "tokens at once){}, activations {}\n",
                  count_text(static_cast<double>(decoder.parameter_count())),
                  ranks.shape.shard * ranks.shape.tensor > 1 ? ", each rank" : "",
                  size_text(memory.weights + memory.windows),
                  memory.file == 0 ? std::string()
                                   : fmt::format(" beside {} in a file", size_text(memory.file)),
                  size_text(memory.cache), counted(memory.blocks, "block"), memory.block_tokens,
                  counted(memory.longest_at_once(), "request"), memory.longest,
                  host_blocks == 0
                      ? std::string()
                      : fmt::format(", {} in host memory ({})", size_text(memory.host_cache),
                                    counted(host_blocks, "block")),
                  size_text(memory.activations))};
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
      "less for the cache",
      size_text(bytes), size_text(*available), help);
}

}  // namespace zero
