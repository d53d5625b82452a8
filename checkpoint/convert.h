// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "checkpoint/file_header.h"
#include "device/view.h"

namespace zero {

/// Converts elements in a file's encoding (F32, BF16, F16; any alignment) to elements of `to`
/// (fp32, bf16, fp16; host memory), rounding to nearest even. Synchronous, on the calling thread.
/// Throws zero::Error on other types and if `bytes` does not hold exactly the elements of `to`.
void decode(FileType from, std::span<const std::byte> bytes, View to);

}  // namespace zero
