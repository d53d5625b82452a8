// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "weights/hf/file_header.h"

namespace zero {

/// Converts elements in a file's encoding (F32, BF16, F16; any alignment) to fp32, exactly.
/// Throws zero::Error on other types and if `bytes` does not hold exactly the elements of `to`.
void decode(FileType from, std::span<const std::byte> bytes, std::span<float> to);

}  // namespace zero
