// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero {

/// Says that this process goes on, for a watchdog that would take long computing for an endless
/// loop. For loops over gigabytes outside of steps in which no collective, unit of the model or
/// call to the disk shows that: once for each part of them that takes less than a second. Any
/// thread; no lock.
void give_sign_of_life() noexcept;

/// How many this process has given.
std::int64_t signs_of_life() noexcept;

}  // namespace zero
