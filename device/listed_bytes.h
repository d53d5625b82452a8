// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "device/memory_ledger.h"

namespace zero {

/// "parameters 512, optimizer 1024": the classes with bytes, or "nothing"; for messages.
std::string listed(const BytesByClass& bytes);

}  // namespace zero
