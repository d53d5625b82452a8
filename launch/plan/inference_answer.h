// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/generate/answer_plan.h"
#include "launch/generate/generate_flags.h"
#include "launch/plan/machine.h"

namespace zero {

/// What is to be answered, where, and in which ways.
struct InferenceQuestion {
  DecoderShape model{};
  std::string model_text{};  ///< as it was given
  std::string folder{};      ///< of its config.json; empty: weights are elements
  Machine machine{};
  int threads = 0;  ///< of a CPU's rank
  /// What all ways have in common: requests at once, blocks and format of the cache, what is kept.
  GenerateFlags flags{};
  std::vector<std::int64_t> tokens{};  ///< of requests, with their answers, in turn
  std::vector<DType> dtypes{};         ///< empty: all, and bf16 beside codes
  std::vector<std::string> weights{};  ///< empty: all that the folder's weights can be
  std::vector<int> tensors{};          ///< empty: all that divide the ranks
};

/// One way, as zero_generate --plan plans it.
struct InferenceRow {
  GenerateFlags flags{};
  AnswerPlan plan{};
  std::int64_t most_requests = 0;  ///< of the longest, that the memory holds at once
  std::string refusal{};           ///< why there is no plan; empty: there is one

  bool fits() const { return refusal.empty() && plan.of_device() <= plan.limit; }
  /// The part with most bytes.
  std::string largest_text() const;
};

/// What zero_plan says about inference.
struct InferenceAnswer {
  InferenceQuestion question{};
  std::vector<InferenceRow> rows{};  ///< better weights first
  bool fits() const;
};

/// Plans weights x tensor ranks x sharding. GPUs answer each alone, as zero_generate's do. Throws
/// zero::Error naming the flag that cannot be.
InferenceAnswer answer_inference(const InferenceQuestion& question);

/// The table for people.
std::string text_of(const InferenceAnswer& answer);
nlohmann::ordered_json json_of(const InferenceAnswer& answer);

}  // namespace zero
