// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "device/device.h"

namespace zero {

/// A GPU's memory, as its driver tells anyone: no process needs a context on it.
struct GpuMemory {
  static constexpr int kWhole = -1;
  int index = 0;      ///< the driver's number, as in nvidia-smi
  int part = kWhole;  ///< of a GPU that is cut (MIG), the part's number
  std::string name{};
  std::string uuid{};
  std::int64_t total = 0;
  std::int64_t free = 0;
  /// Bytes by process; of some only that they are there (0), as in containers.
  std::map<int, std::int64_t> processes{};
  std::string problem{};  ///< why the driver does not tell total and free; empty: it does

  /// "GPU 0", or of a part "GPU 0.2".
  std::string label() const;
  std::int64_t bytes_of(int process) const;
};

/// What the driver's library of NVIDIA (NVML) says.
struct NvidiaMemory {
  std::vector<GpuMemory> gpus{};
  std::string problem{};  ///< why GPUs are not known; empty: they are, or no driver is installed
};
/// Loads the library at run time, from `library`: builds without CUDA can tell too.
NvidiaMemory nvidia_memory(const char* library = "libnvidia-ml.so.1");

/// A program of this engine that runs on this host, as /proc shows it.
struct ZeroProcess {
  int id = 0;
  std::string program{};          ///< "zero_train"
  int rank = -1;                  ///< as its launcher tells it; -1: it does not
  std::int64_t resident = 0;      ///< bytes; of pages that ranks share, each rank counts all
  std::int64_t proportional = 0;  ///< bytes; of shared pages this process's part. 0: not known
};

/// The processes of this user, but this one, whose program begins with "zero_", by number. Tests
/// set `root`, a prefix of /proc.
std::vector<ZeroProcess> zero_processes(const std::string& root = "");

/// Memory of this host and its GPUs.
struct MachineMemory {
  std::string host{};
  MemoryCapacity memory{};  ///< at most what this process's control group may take
  NvidiaMemory nvidia{};
  std::vector<ZeroProcess> processes{};
};
MachineMemory machine_memory();
/// A table for people.
std::string machine_text(const MachineMemory& machine);

}  // namespace zero
