// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "launch/flight/stragglers.h"

namespace zero {

/// Writes the rings of ranks as one document for Perfetto or chrome://tracing: phases, units of
/// compute as the host submitted them, and collectives with their waits. A collective that has not
/// ended lasts to the rank's newest record, as "(open)". Times are relative to the oldest record.
/// Throws zero::Error naming `path` if it cannot be written.
void write_flight_trace(std::span<const FlightRing> rings, const std::string& path);

}  // namespace zero
