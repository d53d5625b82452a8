// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/descriptor.h"

namespace zero::host {

/// A process of this host, told from a later one that got the same number by its start.
struct Process {
  int id = 0;
  std::uint64_t start = 0;  ///< clock ticks after boot

  bool operator==(const Process&) const = default;
};

/// Throws zero::Error with the system's reason.
Process this_process();
/// The process that has number `id` now. Throws zero::Error with the system's reason.
Process process(int id);
/// Whether the process is gone: ended, waiting to be reaped, or replaced by another. A process that
/// the system has, but does not let be looked at for want of descriptors or memory, is not gone.
bool ended(const Process& process);
/// What the process does now, for people: "process 4711 is stopped".
std::string described(const Process& process);
/// Names the space in which process numbers have a meaning.
std::string process_namespace();
/// Names the space in which this process's user has rights over other processes: a process of
/// another one lets no process here open its files, the same user's process neither.
std::string user_namespace();
/// Whether this process is in the user namespace that the system began with, as outside every
/// container that an ordinary user starts.
bool in_first_user_namespace();

/// Clock ticks after boot at which the process began whose /proc/ID `directory` is; 0 if that
/// cannot be read.
std::uint64_t start_of(const Descriptor& directory);

/// Looks whether one process has ended, through a descriptor of it that is kept: looking needs no
/// other. Where the system gives none (Linux before 5.3, no descriptor left) as the function above.
class Watch {
 public:
  /// Of a process whose start has been compared.
  explicit Watch(const Process& process);

  const Process& process() const { return process_; }
  bool ended() const;

 private:
  Process process_;
  Descriptor handle_;  // of pidfd_open; negative: none
};

}  // namespace zero::host
