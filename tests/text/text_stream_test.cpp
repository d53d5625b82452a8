// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/text_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"

namespace zero {
namespace {

using Ids = std::vector<std::uint32_t>;

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, const Ids& prompt = {}) {
  TextStream stream(tokenizer, prompt);
  std::string text;
  for (const std::uint32_t id : ids) {
    const std::string shown = stream.push(id);
    EXPECT_FALSE(first_invalid_utf8(shown));
    text += shown;
  }
  return text + stream.finish();
}

class Streams : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Tokenizer> tokenizer() const {
    const std::string name = GetParam();
    return make_tokenizer(name == "bytes" ? name : std::string(ZERO_TOKENIZERS) + "/" + name);
  }
};

TEST_P(Streams, ShowWhatDecodeGivesForAnyIds) {
  const auto tokens = tokenizer();
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    Ids ids(random() % 30);
    // Half of the ids are single bytes: characters are cut, continued and broken.
    const auto ids_of_all = static_cast<std::uint32_t>(tokens->vocabulary() + 3);
    for (auto& id : ids) id = random() % (random() % 2 == 0 ? ids_of_all : 256U);
    ASSERT_EQ(streamed(*tokens, ids), replace_invalid_utf8(tokens->decode(ids)));
  }
}

TEST_P(Streams, ContinueAPrompt) {
  const auto tokens = tokenizer();
  const std::string text = "Good day to you, é世 and a 👍🏽 as well";
  const Ids all = tokens->encode(text, {.begin_of_text = true});
  const auto begin =
      static_cast<std::ptrdiff_t>(tokens->encode("", {.begin_of_text = true}).size());
  for (std::ptrdiff_t cut = begin; cut <= static_cast<std::ptrdiff_t>(all.size()); ++cut) {
    const Ids prompt(all.begin(), all.begin() + cut);
    const std::string before = tokens->decode(prompt);
    if (first_invalid_utf8(before)) continue;
    ASSERT_EQ(before + streamed(*tokens, {all.begin() + cut, all.end()}, prompt), text) << cut;
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Streams,
                         ::testing::Values("bytes", "gpt2", "llama3", "llama2", "sentencepiece"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TextStream, KeepsAnUnfinishedCharacterOnly) {
  const auto bytes = make_tokenizer("bytes");
  TextStream stream(*bytes);
  EXPECT_EQ(stream.push('a'), "a");
  EXPECT_EQ(stream.push(0xf0), "");
  EXPECT_EQ(stream.push(0x9f), "");
  EXPECT_EQ(stream.push(0x91), "");
  EXPECT_EQ(stream.push(0x8d), "\U0001F44D");
  EXPECT_EQ(stream.push(0xe2), "");
  EXPECT_EQ(stream.push('b'), "\ufffdb");
  EXPECT_EQ(stream.push(0xff), "\ufffd");
  EXPECT_EQ(stream.push(0xe2), "");
  EXPECT_EQ(stream.push(0x82), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, SpecialTokensAreNoText) {
  const auto tokens = make_tokenizer(std::string(ZERO_TOKENIZERS) + "/sentencepiece");
  Ids ids{1};  // <s>
  for (const std::uint32_t id : tokens->encode("a day")) ids.push_back(id);
  ids.push_back(2);  // </s>
  EXPECT_EQ(tokens->decode(ids), "a day");
  EXPECT_EQ(streamed(*tokens, ids), "a day");
  EXPECT_EQ(streamed(*tokens, tokens->encode("a day"), tokens->encode("b")), " a day");
}

}  // namespace
}  // namespace zero
