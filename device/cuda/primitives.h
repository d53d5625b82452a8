// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "device/kernels.h"
#include "device/view.h"

/// Enqueue the work of the CUDA device's Kernels on a native queue. Arguments are already checked.
namespace zero::cuda {

/// Kernels::convert between unequal dtypes, both sides in device memory.
void convert(const View& from, const View& to, cudaStream_t stream);

/// The most inputs of one reduction: their addresses are kernel arguments.
inline constexpr std::size_t kMostInputs = 2048;
/// The most addends of one reduction.
inline constexpr std::size_t kMostAddends = 8;

/// Kernels::tree_reduce. `limbs`, unless null, is device memory for ExactSum::kLimbs integers that
/// the norm's blocks are added to; `blocks`: enough to keep the device busy.
void tree_reduce(std::span<const View> inputs, const ReduceEpilogue& epilogue, std::int64_t* limbs,
                 int blocks, cudaStream_t stream);

/// Kernels::combine, of at most kMostInputs inputs.
void combine(std::span<const View> inputs, ReduceOp op, const View& to, cudaStream_t stream);

}  // namespace zero::cuda
