// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/errors.h"
#include "tests/scratch.h"
#include "text/tokenizer.h"

namespace zero {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<std::uint32_t>;

/// A folder of record_ids.py.
class TokenizerFolder {
 public:
  explicit TokenizerFolder(const json& of) {
    for (const auto& [name, source] : of["copied"].items()) {
      write(name, testing::file_bytes(ZERO_TOKENIZERS "/" + source.get<std::string>()));
    }
    if (!of["patch"].empty()) {
      const json file = json::parse(testing::file_bytes(scratch_.path("tokenizer.json")));
      write("tokenizer.json", file.patch(of["patch"]).dump());
    }
    for (const auto& [name, content] : of["written"].items()) {
      write(name, content.is_string() ? content.get<std::string>() : content.dump());
    }
  }

  void write(const std::string& name, const std::string& bytes) const {
    testing::write_bytes(scratch_.path(name), bytes);
  }
  std::string path() const { return scratch_.path(); }

 private:
  testing::Scratch scratch_;
};

json recorded() { return json::parse(testing::file_bytes(ZERO_WILD_TOKENIZERS "/cases.json")); }

Ids encode(const Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.encode_pieces(std::vector<PromptPiece>{{text, true}});
}

TEST(WildTokenizers, GiveTheIdsOfTransformers) {
  const json all = recorded();
  ASSERT_EQ(all["cases"].size(), 12U);
  for (const json& each : all["cases"]) {
    const TokenizerFolder folder(each);
    const auto tokenizer = make_tokenizer(folder.path());
    for (std::size_t i = 0; i < each["texts"].size(); ++i) {
      EXPECT_EQ(encode(*tokenizer, each["texts"][i]), each["ids"][i].get<Ids>())
          << each["name"] << ": " << each["texts"][i];
    }
  }
}

json folder_of(const char* name) {
  const json all = recorded();
  for (const json& each : all["cases"]) {
    if (each["name"] == name) return each;
  }
  return {};
}

TEST(WildTokenizers, ATokenizerJsonThatIsNotComputedLeavesTheModelBesideIt) {
  json folder = folder_of("a tokenizer.json beside a tokenizer.model");
  folder["patch"].push_back({{"op", "replace"}, {"path", "/model/type"}, {"value", "Unigram"}});
  const auto tokenizer = make_tokenizer(TokenizerFolder(folder).path());
  EXPECT_EQ(encode(*tokenizer, folder["texts"][0]), folder["ids"][0].get<Ids>());
}

TEST(WildTokenizers, AVocabularyOfTiktokenIsToldWhatItLacks) {
  const json both = folder_of("a vocabulary of tiktoken beside a tokenizer.json");
  json alone = both;
  alone["copied"] = json::object();
  EXPECT_THAT(error_of([&] { make_tokenizer(TokenizerFolder(alone).path()); }),
              AllOf(HasSubstr("tokenizer.model: is a vocabulary of tiktoken, lines of a token in "
                              "base64 and its rank"),
                    HasSubstr("put the model's tokenizer.json beside it")));
  json wrong = both;
  wrong["patch"] =
      json::parse(R"([{"op": "replace", "path": "/model/type", "value": "WordPiece"}])");
  EXPECT_THAT(error_of([&] { make_tokenizer(TokenizerFolder(wrong).path()); }),
              HasSubstr("tokenizer.json: model.type: found \"WordPiece\", expected \"BPE\""));
}

TEST(WildTokenizers, AddedTokensWithoutAnIdAreNamed) {
  const TokenizerFolder folder(folder_of("ChatML in added_tokens.json alone"));
  folder.write("added_tokens.json", R"({"<|im_end|>": "32000"})");
  EXPECT_THAT(error_of([&] { make_tokenizer(folder.path()); }),
              HasSubstr("added_tokens.json: <|im_end|>: found \"32000\", expected an id below"));
  folder.write("added_tokens.json", "[]");
  EXPECT_THAT(error_of([&] { make_tokenizer(folder.path()); }),
              HasSubstr("added_tokens.json: is not a JSON object of tokens with ids"));
}

// A control token of the model stays one if added_tokens.json lists it among plain ones.
TEST(WildTokenizers, AUsersWordsWriteNoControlToken) {
  const TokenizerFolder folder(folder_of("ChatML in added_tokens.json alone"));
  const auto tokenizer = make_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a</s>b")), "a</s>b");
  EXPECT_EQ(tokenizer->piece(0), "");
}

}  // namespace
}  // namespace zero
