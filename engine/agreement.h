// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "collectives/communicator.h"

namespace zero {

/// First character of a line that only the ranks of one group must have in common.
inline constexpr char kOfGroup = '~';

/// Compares `lines` ("key: value" each, newline-terminated) of all ranks. Where they differ every
/// rank throws the same zero::Error: the first rank that differs from rank 0, the first key that
/// differs, both values. Lines that begin with kOfGroup are compared with those of rank r % groups:
/// every `groups`-th rank is of one group. Collective; blocks the host.
void require_agreement(Communicator& communicator, Device& device, std::string_view operation,
                       std::string_view lines, int groups = 1);

}  // namespace zero
