// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/engine/plain.h"

// What the tests of values in a file have in common: a setup, and all that may happen to states.
namespace zero::testing {

/// Units of odd sizes, one of several windows, with frozen parameters and slices.
plain::Setup odd_setup(int stage, const MeshShape& mesh, DType compute, MomentFormat moments);

/// odd_setup() at stage 3, with small parameters among the frozen ones too.
plain::Setup frozen_setup(const MeshShape& mesh, DType compute, MomentFormat moments);

/// The same with optimizer states in a file, in small windows on a disk that transfers late.
plain::Setup with_file(plain::Setup setup);

/// The values that the leases of an evaluation show, one unit after the other.
std::vector<float> leased_values(plain::Trainer& trainer);

/// What each rank sees of the states, in hashes, while they are trained, read, written, set, made
/// anew, and used by evaluations.
std::vector<std::vector<std::uint64_t>> stories(const plain::Setup& setup);

/// A setup with its states elsewhere.
using Placing = std::function<plain::Setup(plain::Setup)>;
/// Expects the stories of setups `away` to be those of memory.
void expect_stories_of_memory(const Placing& away);
/// A run that ends with its values in one place and goes on with them in another.
struct Move {
  plain::Setup from;
  plain::Setup to;
  bool on_transfer = true;  ///< the stream that copies its states; else that of compute
};
/// Expects such a run to come to the bits of one in `memory` that does not end between.
void expect_to_go_on(const plain::Setup& memory, const Move& move);
/// Expects runs whose states are placed one way to go on with them placed the other way.
void expect_runs_to_go_on(const Placing& here, const Placing& away);

}  // namespace zero::testing
