// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/batch_arithmetic.h"

#include "base/checked_math.h"
#include "base/error.h"

namespace zero {
namespace {

std::int64_t divided(std::int64_t train, const char* by_name, std::int64_t by, int world) {
  const std::int64_t product = checked_mul(by, world);
  if (train % product != 0) {
    fail(
        "train_batch_size {} is not a multiple of {} {} x world {} = {}; set train_batch_size to "
        "{} "
        "or change {} or the number of ranks",
        train, by_name, by, world, product, round_up(train, product), by_name);
  }
  return train / product;
}

}  // namespace

Batch infer_batch(const BatchRequest& request, int world) {
  const auto& [train, micro, accumulation] = request;
  if (train && micro && accumulation) {
    const std::int64_t product = checked_mul(checked_mul(*micro, *accumulation), world);
    ZERO_CHECK(*train == product,
               "train_batch_size {} is not train_micro_batch_size_per_gpu {} x "
               "gradient_accumulation_steps {} x world {} = {}; leave one of the three out",
               *train, *micro, *accumulation, world, product);
    return {*train, *micro, *accumulation};
  }
  if (train && micro) {
    return {*train, *micro, divided(*train, "train_micro_batch_size_per_gpu", *micro, world)};
  }
  if (train && accumulation) {
    return {*train, divided(*train, "gradient_accumulation_steps", *accumulation, world),
            *accumulation};
  }
  if (train) return {*train, divided(*train, "gradient_accumulation_steps", 1, world), 1};
  ZERO_CHECK(
      micro.has_value(),
      "neither train_batch_size nor train_micro_batch_size_per_gpu is given; give at least one "
      "of them");
  const std::int64_t steps = accumulation.value_or(1);
  return {checked_mul(checked_mul(*micro, steps), world), *micro, steps};
}

}  // namespace zero
