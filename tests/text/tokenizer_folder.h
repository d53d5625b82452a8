// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/errors.h"
#include "tests/scratch.h"
#include "text/tokenizer.h"

namespace zero::testing {

/// A folder of a tokenizer's files, as a test writes them.
class TokenizerFolder : public ::testing::Test {
 protected:
  void write(const char* name, const std::string& text) const { scratch_.write(name, text); }
  std::unique_ptr<Tokenizer> open() const { return make_tokenizer(scratch_.path()); }
  std::string refusal() const {
    return error_of([&] { open(); });
  }
  std::string refusal_of_config(const std::string& text) const {
    write("tokenizer_config.json", text);
    return refusal();
  }

  Scratch scratch_;
};

}  // namespace zero::testing
