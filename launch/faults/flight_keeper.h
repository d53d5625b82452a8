// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <vector>

namespace zero {

class FlightFile;
class HostRanks;
struct FlightCopy;

/// For these seconds the end of a process waits for its copies.
inline constexpr std::chrono::milliseconds kForCopies{1000};

/// Puts the copies in their places, on a thread of its own, as the server of a network's file
/// system may not answer: after `patience` that thread goes on alone. What another rank has copied,
/// or a later run has replaced, stays. Whether all copies were made, or needed none.
bool keep_copies(std::vector<FlightCopy> copies, std::chrono::milliseconds patience) noexcept;

/// keep_copies() of this rank's own flight file and those of ranks of this host that died. `peers`
/// may be null. For the end of a process that does not end well; any thread.
void keep_flight_files(const FlightFile& own, const HostRanks* peers) noexcept;

}  // namespace zero
