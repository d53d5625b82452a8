// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace zero::host {

/// A process of this host, told from a later one that got the same number by its start.
struct Process {
  int id = 0;
  std::uint64_t start = 0;  ///< clock ticks after boot
};

Process this_process();
/// The process that has number `id` now.
Process process(int id);
/// Whether the process is gone: ended, waiting to be reaped, or replaced by another.
bool ended(const Process& process);
/// What the process does now, for people: "process 4711 is stopped".
std::string described(const Process& process);
/// Names the space in which process numbers have a meaning.
std::string process_namespace();

}  // namespace zero::host
