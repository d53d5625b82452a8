// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/consecutive.h"
#include "launch/data/token_file.h"
#include "tests/scratch.h"

namespace zero::testing {

/// The tokens begin, begin + 1, ... end - 1.
inline std::vector<std::uint32_t> counted(std::uint32_t begin, std::uint32_t end) {
  return consecutive(begin, end - begin);
}

/// Writes a file of tokens into `folder`; gives its path.
inline std::string write_tokens(const Scratch& folder, const std::string& name,
                                const std::vector<std::uint32_t>& tokens,
                                std::int64_t token_bytes = 2) {
  TokenFileWriter writer(folder.path(name), token_bytes);
  writer.write(tokens);
  writer.finish();
  writer.commit();
  return folder.path(name);
}

}  // namespace zero::testing
