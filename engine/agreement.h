// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "collectives/communicator.h"

namespace zero {

/// Compares `lines` ("key: value" each, newline-terminated) of all ranks. Where they differ every
/// rank throws the same zero::Error: the first rank that differs from rank 0, the first key that
/// differs, both values. Collective; blocks the host.
void require_agreement(Communicator& communicator, Device& device, std::string_view operation,
                       std::string_view lines);

}  // namespace zero
