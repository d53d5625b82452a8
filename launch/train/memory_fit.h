// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/train/plan.h"

namespace zero {

struct DecoderShape;
struct RecomputePlan;
struct TrainConfig;

/// MemoryUse::bounded() of the largest rank.
std::int64_t planned_rank_bytes(const RankPlans& plans);
std::int64_t planned_rank_bytes(const TrainConfig& config, BackendKind backend);

/// Floating-point operations that backward repeats for one token, over all tensor ranks: products
/// and attention (causal: half of the square).
double recomputed_flop(const DecoderShape& model, std::int64_t sequence, const RecomputePlan& plan);

/// For recompute "auto": sets the plan of least recomputed_flop() whose planned_rank_bytes() are at
/// most the limit; if none fits, the one of least memory. In these plans the first n blocks compute
/// a tensor again, with an n for each of qkv, attended and hidden, and one for whole blocks.
/// Otherwise changes nothing. Plans alone: every rank finds the same. Returns the ranks' memory
/// with what was chosen; empty without run.memory_limit.
///
/// Of a model of more than 96 blocks, n of qkv, attended and whole blocks is tried in steps of
/// div_ceil(layers, 96). On a GPU pages may cost a plan that just fits.
RankPlans choose_recompute(TrainConfig& config, BackendKind backend);

/// Throws zero::Error if `plans`, the ranks' memory, are above the run's limit: planned, limit, the
/// difference, and the planned bytes of changes that would help.
void check_memory_limit(const TrainConfig& config, BackendKind backend, const RankPlans& plans);

/// Lines for people on what backward computes again; none if nothing, and nothing was asked for.
std::vector<std::string> recompute_lines(const TrainConfig& config);

}  // namespace zero
