// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <bit>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "launch/config/answers.h"
#include "launch/config/train_config.h"

namespace zero {
namespace {

/// Whether the batch and the mesh have a place for each of `ranks` ranks.
bool fits(Configuration values, int ranks) {
  const auto size = [&](const char* key) {
    return values.is_null(key) ? std::nullopt : std::optional(values.integer(key));
  };
  try {
    const MeshShape mesh = make_mesh_shape(values, ranks);
    infer_batch(
        {.train = size("train_batch_size"), .micro = size("train_micro_batch_size_per_gpu")},
        mesh.data_ranks());
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void check_elastic(const Configuration& values) {
  if (!values.boolean("run.elastic")) return;
  const auto refuse = [&](const std::string& found, std::string_view remedy) {
    throw refusal_of(values, {{"run.elastic", false}},
                     "run.elastic is true, but {}; {}, or leave run.elastic out", found, remedy);
  };
  // A step has the same bits on other ranks only if it has the same micro-batches.
  for (const char* const key : {"train_batch_size", "train_micro_batch_size_per_gpu"}) {
    if (values.is_null(key)) {
      refuse(
          fmt::format("{} is not given, so that a step would depend on the ranks that come", key),
          "give it a number");
    }
  }
  if (!values.is_null("gradient_accumulation_steps")) {
    refuse(fmt::format("gradient_accumulation_steps is {}, which follows from the ranks that come",
                       values.integer("gradient_accumulation_steps")),
           "leave it out");
  }
  if (values.integer("mesh.tensor") == -1) {
    refuse("mesh.tensor is -1, and steps round differently with another number of tensor ranks",
           "give mesh.tensor a number");
  }
  if (values.integer("mesh.shard") != -1 && values.integer("mesh.replicate") != -1) {
    refuse(fmt::format("mesh.replicate is {} and mesh.shard is {}, which fit one number of ranks "
                       "alone",
                       values.integer("mesh.replicate"), values.integer("mesh.shard")),
           "give one of them -1");
  }
}

int elastic_ranks(const Configuration& values, int came) {
  if (!values.boolean("run.elastic")) return came;
  const int most = static_cast<int>(std::bit_floor(static_cast<unsigned>(came)));
  for (int ranks = most; ranks > 0; ranks /= 2) {
    if (fits(values, ranks)) return ranks;
  }
  return most;  // make_train_config() refuses it, and names what does not fit
}

}  // namespace zero
