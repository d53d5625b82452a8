// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "collectives/communicator.h"

namespace zero {

/// What tells this program from another build of it: the linker's build id, or a digest of the code
/// if it has none; of the engine's shared libraries too, if it is built as such.
std::string build_mark();

/// The program of one rank.
struct RankProgram {
  std::string host;
  std::string version;
  std::string build;
};

/// "rank 3 on host b runs zero 1.2 (build 5f3a), rank 0 on host a runs ...", and what to do, of the
/// first rank whose program is not that of rank 0; empty: there is one program.
std::string other_program(std::span<const RankProgram> of_ranks);

/// Throws AgreedError unless all ranks run the same build: two of one version may still compute, or
/// talk to each other, in different ways. Collective.
void require_same_build(Communicator& communicator);

}  // namespace zero
