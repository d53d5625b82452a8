// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "launch/train/plan.h"
#include "launch/train/rank_room.h"

namespace zero {

struct TrainConfig;

/// Makes a run fit run.memory_limit, or the memory of `machine` if there is no limit, by the keys
/// that are "auto":
///
/// 1. recompute (choose_recompute()), whose cost has a bound, a third of a step's arithmetic;
/// 2. if that is not enough, devices of offload_optimizer and offload_param, whose cost has none: a
///    disk's seconds in each step. Each rung moves as little as fits with every block computed
///    again, in thousandths of the optimizer states or shards of parameters (`ratio` at most,
///    `max_in_cpu` at least); then recompute takes the fewest FLOP that fit there.
///
/// Fills in `config`, its values with the reasons; if nothing fits, with what takes the least.
/// Without a limit nothing moves. Plans alone: ranks with one configuration and one `machine` find
/// the same. Returns the ranks' memory with what was chosen; may be empty if nothing was to be
/// chosen.
RankPlans fit_memory(TrainConfig& config, BackendKind backend, const RankRoom& machine = {});

}  // namespace zero
