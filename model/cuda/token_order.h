// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "model/ops.h"

namespace zero::cuda {

/// The rows of a batch, those of equal tokens one after another and in row order.
struct TokenOrder {
  const std::uint32_t* tokens =
      nullptr;  ///< less `first`; `vocabulary` for those outside the table
  const std::int32_t* rows = nullptr;
};

/// Bytes of scratch that order_tokens takes.
std::int64_t token_order_bytes(const EmbeddingShape& shape);

/// Enqueues the sorting of `tokens`, i32: by 8 bits at a time, each stable, so the order is the
/// only one there is. The result lies in `scratch`.
TokenOrder order_tokens(cudaStream_t stream, const EmbeddingShape& shape, View tokens,
                        void* scratch);

}  // namespace zero::cuda
