// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"
#include "launch/memory/nvidia_memory.h"

namespace zero {

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
