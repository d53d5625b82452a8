// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/text/tokenizer_folder.h"
#include "text/byte_level.h"
#include "text/special_names.h"
#include "text/tokenizer_config.h"

namespace zero {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<std::uint32_t>;

/// Special tokens that the files beside a tokenizer name, and its own file does not.
class UnlistedTokens : public testing::TokenizerFolder {
 protected:
  /// Of a text that a template writes.
  static Ids rendered(const Tokenizer& tokenizer, const std::string& text) {
    return tokenizer.encode_pieces(std::vector<PromptPiece>{{text, true}});
  }
};

// The ids are those of transformers 5.24 with the same files.
TEST_F(UnlistedTokens, HaveTheNextIds) {
  const auto ids = [&](const char* config) {
    write("tokenizer_config.json", config);
    const auto tokenizer = open();
    Ids all;
    for (const char* token : {"<a>", "<b>", "<i>", "<p>"}) {
      const Ids one = rendered(*tokenizer, token);
      EXPECT_EQ(one.size() == 1, tokenizer->special_token(token).has_value()) << token;
      all.push_back(one.size() == 1 ? one[0] : 0);
    }
    return all;
  };
  write("tokenizer.json", byte_tokenizer_json());
  EXPECT_EQ(ids(R"({"additional_special_tokens": ["<a>", "<b>"]})"), (Ids{256, 257, 0, 0}));
  EXPECT_EQ(ids(R"({"pad_token": "<p>", "extra_special_tokens":
                    ["<a>", {"__type": "AddedToken", "content": "<b>", "lstrip": true}]})"),
            (Ids{257, 258, 0, 256}));
  EXPECT_EQ(rendered(*open(), "x <b>"), (Ids{'x', 258}));
  EXPECT_EQ(ids(R"({"model_specific_special_tokens": {"image_token": "<i>"}})"),
            (Ids{0, 0, 256, 0}));
  EXPECT_EQ(ids(R"({"pad_token": "<p>"})"), (Ids{0, 0, 0, 0})) << "no text writes it";
  EXPECT_EQ(ids(R"({"additional_special_tokens": ["<a>", "!"]})"), (Ids{256, 0, 0, 0}));
  EXPECT_EQ(open()->special_token("!"), 33);
  std::string text = byte_tokenizer_json();
  text.replace(text.find("\"added_tokens\":[]"), 17,
               R"("added_tokens":[{"id":256,"content":"<a>","special":true}])");
  write("tokenizer.json", text);
  EXPECT_EQ(ids(R"({"pad_token": "<p>", "extra_special_tokens": {"image_token": "<i>"}})"),
            (Ids{256, 0, 258, 257}));
  write("special_tokens_map.json", R"({"additional_special_tokens": ["<a>", "<b>"]})");
  EXPECT_EQ(ids("{}"), (Ids{256, 257, 0, 0}));
}

TEST_F(UnlistedTokens, AreRefusedWhereTheNextIdIsNotCertain) {
  write("tokenizer.json", byte_tokenizer_json());
  EXPECT_THAT(
      refusal_of_config(R"({"additional_special_tokens": ["<a>"],
                            "extra_special_tokens": {"image_token": "<i>"}})"),
      HasSubstr("tokenizer_config.json: image_token: found \"<i>\", which the tokenizer does not "
                "list: others have no id either, and versions of transformers number them in other "
                "orders; list it with its id among the added_tokens of its file"));
  EXPECT_THAT(refusal_of_config(R"({"additional_special_tokens": ["<a>"],
                                    "added_tokens_decoder": {"300": {"content": "<z>"}}})"),
              HasSubstr("additional_special_tokens: found \"<a>\", which the tokenizer does not "
                        "list: its ids have gaps"));
}

TEST_F(UnlistedTokens, HaveTheNextIdsBesideAModelOfSentencePiece) {
  write("tokenizer.model", testing::file_bytes(ZERO_TOKENIZERS "/sentencepiece/tokenizer.model"));
  const std::int64_t pieces = open()->vocabulary();
  write("tokenizer_config.json",
        R"({"bos_token": "<s>", "additional_special_tokens": ["</s>", "<|im_end|>"]})");
  EXPECT_EQ(open()->special_token("<|im_end|>"), pieces);
  EXPECT_EQ(rendered(*open(), "<|im_end|>"), Ids{static_cast<std::uint32_t>(pieces)});
  EXPECT_EQ(open()->vocabulary(), pieces + 1);
}

}  // namespace
}  // namespace zero
