// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "architecture/family.h"
#include "launch/plan/candidate.h"

namespace zero::testing {

/// Choices of a test, by a seed that it prints: another one every time, or ZERO_TEST_SEED.
class Draw {
 public:
  Draw() : seed_(chosen_seed()), random_(seed_) {
    fmt::print("ZERO_TEST_SEED={}\n", seed_);
    ::testing::Test::RecordProperty("seed", std::to_string(seed_));
  }
  /// The choices of one of many inputs by a seed that has been printed.
  Draw(unsigned seed, std::int64_t input) : seed_(seed) {
    std::seed_seq both{seed, static_cast<unsigned>(input)};
    random_.seed(both);
  }

  unsigned seed() const { return seed_; }
  std::int64_t number(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  template <typename T>
  T one_of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(number(0, std::ssize(all) - 1))];
  }
  /// True once in `of` draws.
  bool once_in(std::int64_t of) { return number(1, of) == 1; }

 private:
  static unsigned chosen_seed() {
    const char* const given = std::getenv("ZERO_TEST_SEED");
    return given == nullptr ? std::random_device()() : static_cast<unsigned>(std::stoul(given));
  }

  unsigned seed_;
  std::mt19937 random_;
};

/// A decoder of GPT-2's, Llama's (with what Mistral and Qwen add) or Gemma's kind, of at most half
/// a million parameters and a context of 64 tokens.
inline DecoderShape drawn_model(Draw& draw) {
  const std::int64_t heads = draw.one_of<std::int64_t>({2, 3, 4, 6});
  const std::int64_t head_width = draw.one_of<std::int64_t>({16, 24, 32});
  const std::int64_t layers = draw.number(1, 5);
  nlohmann::json section{{"family", draw.one_of<std::string>({"gpt2", "llama", "gemma3"})},
                         {"layers", layers},
                         {"width", heads * head_width},
                         {"heads", heads},
                         {"context", 64},
                         {"vocabulary", draw.number(256, 1200)}};
  if (section["family"] == "gpt2") return decoder_shape(section);
  section["kv_heads"] =
      heads / draw.one_of<std::int64_t>(heads % 2 == 0 ? std::vector<std::int64_t>{1, 2, heads}
                                                       : std::vector<std::int64_t>{1, heads});
  section["intermediate"] = 16 * draw.number(4, 20);
  section["head"] = draw.one_of<std::string>({"tied", "separate"});
  if (draw.once_in(3)) section["head_width"] = 2 * head_width;
  if (draw.once_in(3)) {
    section["window"] = draw.number(1, 40);
    if (draw.once_in(2)) section["local_layers"] = fmt::format("0-{}", draw.number(0, layers - 1));
  }
  if (section["family"] == "llama" && draw.once_in(3)) {
    section[draw.one_of<std::string>({"qkv_bias", "head_norms"})] = true;
  }
  return decoder_shape(section);
}

/// Keys of values below the device's memory, which closed forms know too.
inline std::vector<std::string> drawn_tier_keys(Draw& draw, const Candidate& candidate) {
  const std::string states = "zero_optimization.offload_optimizer.";
  const std::string shards = "zero_optimization.offload_param.";
  std::vector<std::string> keys;
  // Most parameters of drawn models are small by default, so that no unit has a shard.
  if (candidate.offload.parameters != Tier::device && !draw.once_in(4)) {
    keys.push_back(fmt::format("zero_optimization.stage3_param_persistence_threshold={}",
                               draw.number(0, 10'000)));
  }
  if (draw.once_in(2)) keys.push_back(fmt::format("{}buffer_count={}", shards, draw.number(1, 6)));
  if (candidate.mesh.tensor == 1 &&
      draw.once_in(3)) {  // otherwise other units may fit on each rank
    keys.push_back(fmt::format("{}max_in_cpu={}", shards, draw.number(0, 300'000)));
  }
  if (draw.once_in(2)) keys.push_back(fmt::format("{}buffer_count={}", states, draw.number(1, 6)));
  if (draw.once_in(2)) {
    keys.push_back(fmt::format("{}buffer_size={}", states, draw.number(4096, 20'000)));
  }
  if (draw.once_in(3)) keys.push_back(fmt::format("aio.block_size={}", 4096 * draw.number(1, 64)));
  for (const char* const key : {"pipeline_read", "pipeline_write"}) {
    if (draw.once_in(3)) keys.push_back(states + key + "=false");
  }
  return keys;
}

}  // namespace zero::testing
