// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "files/file_system.h"

namespace zero {

/// Where values live, fast to slow.
enum class Tier : std::uint8_t {
  device,  ///< memory of the device
  host,    ///< pinned host memory of a GPU's host; on a CPU the same as `device`
  file,    ///< a file on NVMe, read and written through windows of host memory
};

/// Where and how a TierFile transfers.
struct TierFileOptions {
  std::string folder;
  /// Most of one request, a multiple of kBlock. Requests end at multiples of it in the file.
  std::int64_t block_bytes = std::int64_t{1} << 20;
  files::QueueOptions queue{.depth = 8};  ///< requests in flight
  bool overlap_events = true;             ///< false: a transfer starts when all before it are over
  files::FileSystem* disk = nullptr;      ///< null: files::disk(); must outlive the file
};

}  // namespace zero
