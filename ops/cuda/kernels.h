// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "ops/cuda/pass_tables.h"
#include "ops/inference_ops.h"

/// Enqueue the work of CudaInferenceOps on a native queue.
namespace zero::cuda {

/// y (rows, out) = x (rows, in) W + bias, W stored as codes, which are turned to their values in
/// registers. An element is a sum in fp32 in an order that `in` fixes: its bits do not depend on
/// the number of rows.
struct CodeProduct {
  std::int64_t rows = 0;
  View x, weight;
  View bias{};  ///< may be empty
  View y;
};
void multiply_codes(cudaStream_t stream, const WeightShape& shape, const CodeProduct& product);

/// InferenceOps::embed.
void embed(cudaStream_t stream, const WeightShape& shape, const DevicePass& pass, View weight,
           View x);
/// Row i of `to`, (count, width) = row list[i] of `from`.
struct RowGather {
  const std::int32_t* list = nullptr;
  std::int64_t count = 0;
  std::int64_t width = 0;
  View from, to;
};
void gather_rows(cudaStream_t stream, const RowGather& gather);

/// InferenceOps::append.
void append(cudaStream_t stream, const CachedAttention& operands, const DevicePass& pass);
/// Floats of one slot of partial results for one key head.
constexpr std::int64_t part_floats(std::int64_t head_width) { return head_width + 2; }
/// InferenceOps::attend. `parts`: fp32 (slots of the planner, kv_heads, part_floats).
struct AttentionScratch {
  const AttentionPlanner* planner = nullptr;
  float* parts = nullptr;
};
void attend(cudaStream_t stream, const CachedAttention& operands, const DevicePass& pass,
            const AttentionScratch& scratch);

}  // namespace zero::cuda
