// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "launch/config/configuration.h"
#include "tests/errors.h"

namespace zero::testing {

/// The configuration of a file "c.json" that has `body` beside data.train. No file is there.
inline Configuration read(const std::string& body, const std::vector<std::string>& overrides = {}) {
  const std::string text =
      R"({"data": {"train": "a.bin"})" + (body.empty() ? "" : ", " + body) + "}";
  return Configuration::from_json(parse_json_text(text, "c.json"), "c.json", overrides);
}

/// The message of the error that read() ends with.
inline std::string refusal(const std::string& body,
                           const std::vector<std::string>& overrides = {}) {
  return error_of([&] { read(body, overrides); });
}

}  // namespace zero::testing
