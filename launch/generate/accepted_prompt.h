// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inference/generation_request.h"

namespace zero {

/// A prompt that can be answered.
struct AcceptedPrompt {
  GenerationRequest request{};
  std::vector<std::string> stop{};  ///< texts that end the answer before them
  std::string where{};              ///< Prompt::where
  std::int64_t number = 0;          ///< Prompt::number
};

/// Prompts in bytes, for the other ranks of the same program, and back.
std::string encoded(const std::vector<AcceptedPrompt>& prompts);
std::vector<AcceptedPrompt> decoded_prompts(std::string_view bytes);

}  // namespace zero
