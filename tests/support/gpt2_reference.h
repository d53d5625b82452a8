// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/model/training_harness.h"
#include "tests/scratch.h"

namespace zero::testing {

/// What tests/model/make_gpt2_reference.py recorded in `folder`: a GPT-2's sizes and batches, and
/// what PyTorch made of them.
struct Gpt2Reference {
  explicit Gpt2Reference(const std::string& folder)
      : json(nlohmann::json::parse(file_bytes(folder + "/gpt2_reference.json"))) {}

  nlohmann::json json;

  std::int64_t integer(const char* key) const { return json.at(key).get<std::int64_t>(); }
  DecoderShape config() const {
    Section section;
    for (const char* key : {"layers", "width", "heads", "context", "vocabulary"}) {
      section[key] = integer(key);
    }
    return decoder_shape(section);
  }
  BatchShape shape() const { return {integer("batch"), integer("sequence")}; }
  /// Tokens of a batch.
  double tokens() const { return static_cast<double>(shape().batch * shape().sequence); }
  /// From rows of sequence + 1 ids.
  Batch batch(std::size_t step) const {
    return Batch::of_rows(json.at("tokens").at(step).get<std::vector<std::int32_t>>(),
                          shape().sequence);
  }
};

}  // namespace zero::testing
