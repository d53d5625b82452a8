// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/weights.h"
#include "tests/model/training_harness.h"
#include "tests/scratch.h"

namespace zero::testing {

inline std::vector<std::uint32_t> random_prompt(std::int64_t count, std::int64_t vocabulary,
                                                std::uint32_t seed) {
  const std::vector<std::int32_t> ids = Batch::random(count, vocabulary, seed).inputs;
  return {ids.begin(), ids.end()};
}

/// Writes a Hugging Face folder with random weights, which bf16 holds exactly, then calls `body`
/// with the same model in an engine, which computes micro-batches of one sequence without a cache.
inline void with_saved_model(
    const DecoderShape& config, const std::string& folder, std::int64_t sequence,
    const std::function<void(Training&)>& body = [](Training&) {}) {
  local::run(1, [&](Communicator& communicator) {
    const auto device = cpu::open();
    Training training(communicator, *device, {}, config, {1, sequence});
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, 0.2F);
    for (const auto& [name, count] : training.sizes()) {
      const bool norm = (name.find("norm.weight") != std::string::npos ||
                         name.find("ln_") != std::string::npos) &&
                        config.norm != NormKind::rms_plus_one;
      std::vector<float> values(static_cast<std::size_t>(count));
      for (float& value : values) {
        value = to_float(to_bfloat16((norm ? 1.0F : 0.0F) + normal(random)));
      }
      training.write(name, values);
    }
    save_hf_folder(training.engine, folder, config);
    body(training);
  });
}

/// The root of the mean square of differences, beside that of the values.
inline double relative_distance(std::span<const float> found, std::span<const float> exact) {
  EXPECT_EQ(found.size(), exact.size());
  double squares = 0;
  double all = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    squares += std::pow(static_cast<double>(found[i]) - exact[i], 2);
    all += std::pow(static_cast<double>(exact[i]), 2);
  }
  return std::sqrt(squares / all);
}

}  // namespace zero::testing
