// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.h"

/// What a communicator takes of a GPU's memory, and which buffers NCCL gives: rules that runs and
/// plans have in common.
namespace zero::nccl {

/// Bytes of a communicator's scratch.
inline constexpr std::int64_t kScratch = std::int64_t{8} << 20;

/// The scratch of a group of `size` ranks; none for one rank.
Buffer take_scratch(Device& device, int size);

/// Whether a buffer that such a group allocates is NCCL's own: it gives whole pages of 2 MiB.
bool gives_memory(int size, std::int64_t count, DType dtype);

}  // namespace zero::nccl
