// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "ops/weight_shape.h"

namespace zero {

struct AnswerPlan;
struct GenerateFlags;

/// Of a plan that has no memory yet: what --cache-tokens or --host-cache-tokens alone takes beyond
/// plan.limit or, without a limit, `available` bytes (0: not known), with flag, need and limit;
/// empty if each of them fits. Takes no memory by their tokens, unlike a plan with_cache().
std::string cache_shortage(const AnswerPlan& plan, const GenerateFlags& flags,
                           std::int64_t available);

/// Plans memory with a cache of so many tokens; of the draft's, at most what its requests fill.
void plan_cache(AnswerPlan& plan, std::int64_t tokens);

/// What a plan is short of its limit, and the settings that would take notably less.
/// `stored`: the format of the folder's weights.
std::string answer_shortage(const AnswerPlan& plan, const GenerateFlags& flags,
                            WeightFormat stored);

}  // namespace zero
