// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "launch/train/train_flags.h"

namespace zero {

class Communicator;

/// How many of `came` ranks take part in the run: all, but with run.elastic the largest power of
/// two that fits batch and mesh. All too if the configuration is refused, which is told once the
/// ranks have met.
int ranks_taking_part(const TrainFlags& flags, int came);

/// `start` as if only the first `ranks` of its ranks had been started.
Start of_first_ranks(Start start, int ranks);

/// "run.elastic: 6 ranks came, and the first 4 take part; the others end with status 0".
std::string elastic_line(int came, int ranks);

/// The communicator of the ranks that take part, of ranks that mpirun started: MPI has all of them
/// meet, and ends none before the others. Null if all take part. A rank that takes none is a rank
/// of a communicator of `idle` ranks. Collective.
struct ElasticPart {
  std::unique_ptr<Communicator> ranks{};
  bool idle = false;
};
ElasticPart elastic_part(Communicator& came, const TrainFlags& flags);

}  // namespace zero
