// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "ops/quantized_rows.h"

namespace zero::cuda {

/// InferenceOps::pack of codes: calls store(begin, bytes) with all ranges of bytes of the stored
/// weight that these rows make (CodePlaces). On `threads` host threads.
using StoreBytes = std::function<void(std::int64_t begin, std::span<const std::byte> bytes)>;
void pack_codes(const QuantizedRows& rows, int threads, const StoreBytes& store);

}  // namespace zero::cuda
