// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "device/device.h"

namespace zero::cuda {

/// Memory of the calling thread's current GPU. Where the GPU shares the host's memory, `free` is
/// what the host has available: the driver counts files kept in memory, which give way, as taken.
MemoryCapacity current_capacity();

/// Bytes of a GPU without which its libraries may fail to load a kernel.
inline constexpr std::int64_t kRoomForKernels = 64LL << 20;

/// Throws zero::Error if less than that is free on the current GPU. To be called where a library
/// has offered no kernel for `what`, before another way is taken: libraries load kernels when they
/// are first asked for, and report a failure for want of memory as a kernel that does not exist.
void require_room_for_kernels(std::string_view what);

}  // namespace zero::cuda
