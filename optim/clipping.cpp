// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/clipping.h"

#include <cmath>

#include "base/error.h"

namespace zero {

float clip_factor(double norm, double limit) {
  ZERO_CHECK(limit >= 0 && std::isfinite(limit),
             "gradient clipping: the limit is {}; expected a norm above 0, or 0 for none", limit);
  if (limit == 0) return 1.0F;
  const double factor = limit / (norm + 1e-6);
  return factor >= 1 ? 1.0F : static_cast<float>(factor);  // a NaN norm gives NaN
}

}  // namespace zero
