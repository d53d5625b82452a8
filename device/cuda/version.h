// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace zero::cuda {

/// "13.0": of the runtime that this build has, or why it has none and how to get it.
std::string runtime_version();
/// "13.0": what the machine's driver takes, or "none".
std::string driver_version();

}  // namespace zero::cuda
