// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/model_states.h"

#include "base/checked_math.h"

namespace zero {

std::int64_t moment_bytes(MomentFormat format, std::int64_t elements) {
  const std::int64_t scales =
      format == MomentFormat::eight_bit ? div_ceil(elements, kMomentBlock) : 0;
  return elements * size_of(moment_dtype(format)) + scales * size_of(DType::fp32);
}

ModelStates model_states(std::int64_t elements, int stage, std::int64_t ranks, DType compute,
                         MomentFormat moments) {
  ZERO_CHECK(stage >= 0 && stage <= 3, "stage is {}, expected 0, 1, 2 or 3", stage);
  const std::int64_t share = div_ceil(elements, ranks);
  const auto held = [&](int from_stage) { return stage >= from_stage ? share : elements; };
  const std::int64_t e = size_of(compute);
  const std::int64_t master = compute == DType::fp32 ? 0 : size_of(DType::fp32);
  return {.parameters = e * held(3),
          .gradients = e * held(2),
          .optimizer = master * held(1) + 2 * moment_bytes(moments, held(1))};
}

}  // namespace zero
