// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "tests/engine/plain.h"

// What the tests of values in a file have in common: a setup, and all that may happen to states.
namespace zero::testing {

/// Units of odd sizes, one of several windows, with frozen parameters and slices.
plain::Setup odd_setup(int stage, const MeshShape& mesh, DType compute, MomentFormat moments);

/// The same with optimizer states in a file, in small windows on a disk that transfers late.
plain::Setup with_file(plain::Setup setup);

/// The values that the leases of an evaluation show, one unit after the other.
std::vector<float> leased_values(plain::Trainer& trainer);

/// What each rank sees of the states, in hashes, while they are trained, read, written, set, made
/// anew, and used by evaluations.
std::vector<std::vector<std::uint64_t>> stories(const plain::Setup& setup);

}  // namespace zero::testing
