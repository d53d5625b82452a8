// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "tests/scratch.h"
#include "text/text_stream.h"
#include "text/unicode.h"

namespace zero {
namespace {

const std::string kFolder = ZERO_TOKENIZERS;

/// The lines of make_tokenizer_reference.py.
const std::vector<std::string>& lines() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> read;
    std::ifstream file(kFolder + "/lines.jsonl");
    for (std::string line; std::getline(file, line);) read.push_back(nlohmann::json::parse(line));
    return read;
  }();
  return all;
}

std::uint64_t hash_of(const std::vector<std::uint32_t>& ids) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::uint32_t id : ids) {
    for (unsigned shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (id >> shift & 0xffU)) * 0x100000001b3U;
    }
  }
  return hash;
}

class Reference : public ::testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return kFolder + "/" + GetParam(); }
};

TEST_P(Reference, IdsOfTenThousandLinesAreTheRecordedOnes) {
  const auto tokenizer = make_tokenizer(folder());
  const std::string hashes = testing::file_bytes(folder() + "/ids.bin");
  ASSERT_EQ(lines().size(), 10000U);
  ASSERT_EQ(hashes.size(), 80000U);
  int wrong = 0;
  for (std::size_t i = 0; i < lines().size() && wrong < 10; ++i) {
    const auto words = tokenizer->encode(lines()[i]);
    auto prompt = tokenizer->encode("", {.begin_of_text = true});
    const auto marked = tokenizer->encode_pieces(std::vector<PromptPiece>{{lines()[i], true}});
    prompt.insert(prompt.end(), marked.begin(), marked.end());
    std::vector<std::uint32_t> ids = words;
    ids.push_back(0xffffffffU);
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    std::uint64_t recorded = 0;
    std::memcpy(&recorded, hashes.data() + 8 * i, 8);
    const bool same = hash_of(ids) == recorded;
    EXPECT_TRUE(same) << "line " << i << ": " << nlohmann::json(lines()[i]) << "\nwords "
                      << fmt::format("{}\nprompt {}", words, prompt);
    wrong += same ? 0 : 1;
  }
}

TEST_P(Reference, DecodeGivesTheLineBack) {
  const auto tokenizer = make_tokenizer(folder());
  const bool normalizes = std::string(GetParam()) == "qwen2";
  for (const std::string& line : lines()) {
    std::string expected = normalizes ? composed(line) : line;
    if (tokenizer->drops_first_space()) expected = replaced(expected, kSpaceSymbol, " ");
    ASSERT_EQ(tokenizer->decode(tokenizer->encode(line)), expected);
  }
}

TEST_P(Reference, AStreamShowsEachCharacterOnceWhole) {
  const auto tokenizer = make_tokenizer(folder());
  for (std::size_t i = 0; i < lines().size(); i += 10) {
    const auto ids = tokenizer->encode(lines()[i]);
    TextStream stream(*tokenizer);
    std::string text;
    for (const std::uint32_t id : ids) {
      const std::string shown = stream.push(id);
      ASSERT_FALSE(first_invalid_utf8(shown));
      text += shown;
    }
    ASSERT_EQ(text, tokenizer->decode(ids));
    ASSERT_EQ(stream.finish(), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Reference,
                         ::testing::Values("gpt2", "llama3", "qwen2", "llama2", "sentencepiece"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace zero
