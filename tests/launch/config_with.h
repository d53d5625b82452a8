// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "launch/config/train_config.h"
#include "tests/errors.h"

namespace zero::testing {

/// The configuration of a small model, with changes; its file would be "c.json". No file is there.
inline TrainConfig config_with(const std::vector<std::string>& overrides, int world = 1) {
  const char* text =
      R"({"model": {"layers": 2, "width": 64, "heads": 4, "context": 32, "vocabulary": 256},
          "data": {"train": "a.bin"}, "train_batch_size": 8})";
  return make_train_config(
      Configuration::from_json(parse_json_text(text, "c.json"), "c.json", overrides), world);
}

/// The message of the error that config_with() ends with.
inline std::string refusal_with(const std::vector<std::string>& overrides, int world = 1) {
  return error_of([&] { config_with(overrides, world); });
}

}  // namespace zero::testing
