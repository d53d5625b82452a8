// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "files/file_system.h"

namespace zero::files {

struct UringQueue {
  std::unique_ptr<TransferQueue> queue;  ///< null: io_uring cannot be used
  /// If `queue` is null, why io_uring cannot be used. Else "registered buffers", or why the memory
  /// could not be registered; empty if there is none to register.
  std::string note;
};

/// A queue by Linux's io_uring: the kernel runs the transfers, no threads of the process.
/// Parameters as of FileSystem::queue().
UringQueue open_uring_queue(std::span<std::byte> memory, const QueueOptions& options);

}  // namespace zero::files
