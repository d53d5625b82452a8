// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/launch/written_tokens.h"

namespace zero::testing {

/// A folder with the data and the configuration of a run that takes a moment: two blocks of width
/// 32 over bytes.
class TinyRun {
 public:
  TinyRun() {
    std::vector<std::uint32_t> tokens;
    for (std::uint32_t i = 0; i < 3000; ++i) tokens.push_back((i * i / 7 + i) % 251);
    write_tokens(folder_, "train_000000.bin", {tokens.begin(), tokens.begin() + 1500});
    write_tokens(folder_, "train_000001.bin", {tokens.begin() + 1500, tokens.begin() + 2600});
    write_tokens(folder_, "validation.bin", {tokens.begin() + 2600, tokens.end()});
    folder_.write("c.json", R"({
      "model": {"family": "gpt2", "layers": 2, "width": 32, "heads": 2, "context": 32, "vocabulary": 256},
      "data": {"train": ")" + folder_.path() +
                                R"(", "validation": ")" + folder_.path("validation.bin") +
                                R"(", "sequence_length": 16},
      "run": {"steps": 3, "seed": 7, "threads": 1, "log": ")" +
                                folder_.path("run.log") + R"("},
      "train_batch_size": 12, "train_micro_batch_size_per_gpu": 2,
      "zero_optimization": {"stage": 3},  // comments are fine
      "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}},
    })");
  }

  const Scratch& folder() const { return folder_; }
  std::string config() const { return folder_.path("c.json"); }

  /// The lines of run.log.
  std::vector<nlohmann::json> log(const std::string& name = "run.log") const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(folder_.read(name));
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

 private:
  Scratch folder_;
};

}  // namespace zero::testing
