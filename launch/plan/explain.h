// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace zero {

/// Of what --explain is asked beside the usual figures.
struct ExplainQuestion {
  std::int64_t parameters = 7'500'000'000;
  std::int64_t ranks = 64;
};

/// Estimates that introductions quote, each with what it leaves out, as text for people.
std::string explained(const ExplainQuestion& question);

}  // namespace zero
