// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "ops/ops.h"

namespace zero::cuda {

/// The rows of a batch sorted by token, stable: rows of equal tokens are in row order.
struct TokenOrder {
  const std::uint32_t* tokens = nullptr;  ///< minus `first`; `vocabulary` if outside the table
  const std::int32_t* rows = nullptr;
};

/// Bytes of order_tokens' scratch.
std::int64_t token_order_bytes(const EmbeddingShape& shape);

/// Enqueues a radix sort of `tokens`, i32, 8 bits per pass, stable, hence deterministic. The result
/// is in `scratch`.
TokenOrder order_tokens(cudaStream_t stream, const EmbeddingShape& shape, View tokens,
                        void* scratch);

}  // namespace zero::cuda
