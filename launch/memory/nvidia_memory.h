// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zero {

/// A GPU's memory, as its driver tells anyone: no process needs a context on it.
struct GpuMemory {
  int index = 0;  ///< the driver's number, as in nvidia-smi
  std::string name{};
  std::string uuid{};
  std::int64_t total = 0;
  std::int64_t free = 0;
  /// Bytes by process; of some only that they are there (0), as in containers.
  std::map<int, std::int64_t> processes{};
};

/// What the driver's library of NVIDIA (NVML) says.
struct NvidiaMemory {
  std::vector<GpuMemory> gpus{};
  std::string
      problem{};  ///< why there are none to see; empty: there are, or no driver is installed
};
/// Loads the library at run time, from `library`: builds without CUDA can tell too.
NvidiaMemory nvidia_memory(const char* library = "libnvidia-ml.so.1");

}  // namespace zero
