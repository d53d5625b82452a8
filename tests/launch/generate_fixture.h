// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "collectives/backends.h"
#include "tests/launch/shell.h"
#include "tests/launch/tiny_run.h"
#include "tests/launch/train_rank.h"

namespace zero::testing {

inline const std::string kGenerate = ZERO_GENERATE;
inline const std::string kSentence = "The cat sat on the mat. A dog ran to the sea. ";

/// zero_generate on a GPT-2 of bytes that has learned a sentence.
class Generate : public ::testing::Test {
 protected:
  /// Of all tests: the folder `checkpoints`, and a copy of the last one's weights.
  static const TinyRun& trained() {
    static const TinyRun run;
    static const bool once = [] {
      std::vector<std::uint32_t> tokens;
      for (int i = 0; i < 60; ++i) tokens.insert(tokens.end(), kSentence.begin(), kSentence.end());
      write_tokens(run.folder(), "train_000000.bin", tokens);
      write_tokens(run.folder(), "train_000001.bin", tokens);
      const auto config = make_train_config(
          Configuration::read(
              run.config(),
              {"run.steps=400",
               "model={\"family\": \"gpt2\", \"layers\": 2, \"width\": 32, "
               "\"heads\": 2, \"context\": 96, \"vocabulary\": 256}",
               "data.sequence_length=48", "data.validation=null",
               "run.checkpoint={\"folder\": \"" + run.folder().path("checkpoints") + "\"}"}),
          1);
      local::run(1, [&](Communicator& world) { train_rank(config, world, *cpu::open()); });
      std::filesystem::copy(run.folder().path("checkpoints/step_00000400/weights"),
                            run.folder().path("weights"));
      return true;
    }();
    (void)once;
    return run;
  }

  static std::string file(const std::string& name) { return trained().folder().path(name); }
  static std::string command(const std::string& model = file("weights")) {
    return kGenerate + " --model " + model + " ";
  }
  Outcome generate(const std::string& arguments, const std::string& model = file("weights"),
                   const std::string& input = "/dev/null") const {
    return shell(folder_, command(model) + "--threads 1 " + arguments, input);
  }
  /// Of prompts whose answers are there long after the first one.
  std::string long_file() const {
    std::string prompts;
    for (int i = 0; i < 4000; ++i) prompts += "{\"prompt\": \"The\", \"max_tokens\": 90}\n";
    return folder_.write("long.jsonl", prompts);
  }
  std::string text(const std::string& arguments) const {
    const Outcome outcome = generate(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.out;
  }
  std::string refusal(const std::string& arguments) const {
    const Outcome outcome = generate(arguments);
    EXPECT_EQ(outcome.status, 1) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    return outcome.errors;
  }
  std::vector<nlohmann::json> lines(const std::string& arguments) const {
    std::vector<nlohmann::json> all;
    std::istringstream out(text("--json " + arguments));
    for (std::string line; std::getline(out, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }

  Scratch folder_;
};

}  // namespace zero::testing
