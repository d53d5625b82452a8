// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace zero {

/// This host's name, as the system reports it.
std::string host_name();

/// The boot of the running kernel, or an empty text if the system does not tell: another on each
/// host, whose names may be equal, and the same in all containers of one.
std::string boot_id();

/// Bytes of a page of this machine's memory: a power of two, 4 KiB on x86, up to 64 KiB elsewhere.
std::int64_t page_bytes();

/// The most bytes that this process may give a file (RLIMIT_FSIZE), or the largest number: any.
/// Beyond them the system sends a signal (SIGXFSZ), which ends a process that does not expect it.
std::int64_t longest_file();

}  // namespace zero
