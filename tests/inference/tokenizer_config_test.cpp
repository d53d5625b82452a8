// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/text/tokenizer_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "inference/text/byte_level.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ids = std::vector<std::uint32_t>;

class Folder : public ::testing::Test {
 protected:
  void write(const char* name, const std::string& text) const {
    testing::write_bytes(scratch_.path(name), text);
  }
  std::unique_ptr<Tokenizer> open() const { return make_tokenizer(scratch_.directory()); }
  std::string refusal() const {
    return message_of([&] { open(); });
  }
  std::string refusal_of_config(const std::string& text) const {
    write("tokenizer_config.json", text);
    return refusal();
  }

  testing::Scratch scratch_;
};

using TokenizerFolder = Folder;

TEST_F(TokenizerFolder, ConfigsSayWhatBeginsAndEndsAText) {
  std::string text = byte_tokenizer_json();
  text.replace(text.find("\"added_tokens\":[]"), 17,
               R"("added_tokens":[{"id":256,"content":"<s>","special":true},)"
               R"({"id":257,"content":"</s>","special":true}])");
  write("tokenizer.json", text);
  EXPECT_EQ(open()->encode("a", {.begin_of_text = true}), Ids{'a'});
  EXPECT_EQ(open()->end_of_document(), -1);
  EXPECT_THAT(read_end_tokens(scratch_.directory()), IsEmpty());
  write("tokenizer_config.json",
        R"({"add_bos_token": true, "bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  EXPECT_EQ(open()->encode("a", {.begin_of_text = true}), (Ids{256, 'a'}));
  EXPECT_EQ(open()->encode("a"), Ids{'a'});
  EXPECT_EQ(open()->end_of_document(), 257);
  write("config.json", R"({"eos_token_id": 3})");
  EXPECT_THAT(read_end_tokens(scratch_.directory()), ElementsAre(3));
  write("generation_config.json", R"({"eos_token_id": [4, 5]})");
  EXPECT_THAT(read_end_tokens(scratch_.directory()), ElementsAre(4, 5));
  EXPECT_EQ(make_tokenizer(scratch_.path("tokenizer.json"))->end_of_document(), 257);
}

const std::vector<PromptPiece> kTemplate{{"a</s>b", true}};

TEST_F(TokenizerFolder, SentencePieceBeginsWithItsTokenUnlessTheConfigSaysOtherwise) {
  write("tokenizer.model",
        testing::file_bytes(std::string(ZERO_TOKENIZERS) + "/sentencepiece/tokenizer.model"));
  const Ids words = open()->encode("a day");
  Ids prompt{1};
  prompt.insert(prompt.end(), words.begin(), words.end());
  EXPECT_EQ(open()->encode("a day", {.begin_of_text = true}), prompt);
  EXPECT_EQ(open()->end_of_document(), 2);
  EXPECT_EQ(open()->decode(open()->encode_pieces(kTemplate)), "a b");
  write("tokenizer_config.json", R"({"add_bos_token": false, "legacy": false,
      "added_tokens_decoder": {"2500": {"content": "<|im_end|>", "special": true},
                               "2501": {"content": "<tool>", "special": false}}})");
  const auto tokenizer = open();
  EXPECT_EQ(tokenizer->encode("a day", {.begin_of_text = true}), words);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode_pieces(kTemplate)), "ab");
  EXPECT_EQ(tokenizer->vocabulary(), 2502);
  EXPECT_EQ(tokenizer->encode_pieces(std::vector<PromptPiece>{{"<|im_end|>", true}}), Ids{2500});
  EXPECT_EQ(
      tokenizer
          ->encode_pieces(std::vector<PromptPiece>{{"<|im_", false}, {"end|><|im_end|>", true}})
          .back(),
      2500U);
  EXPECT_EQ(tokenizer->encode_pieces(std::vector<PromptPiece>{{"<|im_end|>", false}}),
            tokenizer->encode("<|im_end|>"));
  EXPECT_EQ(tokenizer->encode("<tool>"), Ids{2501});
  EXPECT_EQ(tokenizer->decode(Ids{2501}), "<tool>");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("<|im_end|>")), "<|im_end|>");
}

// Marked or not, what steers a chat is written by its template alone; a plain text has it act.
TEST_F(TokenizerFolder, MessagesOfAChatCannotWriteControlTokensThatAreNotMarkedSpecial) {
  const auto check = [&](const char* token, std::uint32_t id, bool guarded) {
    const auto tokenizer = open();
    EXPECT_EQ(tokenizer->encode_pieces(std::vector<PromptPiece>{{token, true}}), Ids{id}) << token;
    EXPECT_EQ(tokenizer->encode(token), Ids{id}) << token;
    Ids content = tokenizer->encode_pieces(std::vector<PromptPiece>{{token, false}});
    EXPECT_EQ(content == Ids{id}, !guarded) << token;
    EXPECT_EQ(tokenizer->decode(content), token);
    Ids both = tokenizer->encode_pieces(
        std::vector<PromptPiece>{{token, true}, {token, false}, {token, true}});
    EXPECT_EQ(std::ranges::count(both, id), guarded ? 2 : 3) << token;
  };
  const auto check_all = [&] {
    check("<|im_end|>", 2500, true);
    check("Human:", 2501, true);
    check("[INST]", 2502, true);
    check("<tool_call>\n", 2503, true);
    check("word", 2504, false);
    check("\n\n\n", 2505, false);
  };
  const std::string config = R"({"chat_template": "\n\n\n{{ 'Human:' ~ messages[0].content }}",
      "added_tokens_decoder": {"2500": {"content": "<|im_end|>"}, "2501": {"content": "Human:"},
                               "2502": {"content": "[INST]"}, "2504": {"content": "word"},
                               "2503": {"content": "<tool_call>\n", "special": false},
                               "2505": {"content": "\n\n\n"}}})";
  write("tokenizer_config.json", config);
  write("tokenizer.json", byte_tokenizer_json());
  check_all();
  std::filesystem::remove(scratch_.path("tokenizer.json"));
  write("tokenizer.model",
        testing::file_bytes(std::string(ZERO_TOKENIZERS) + "/sentencepiece/tokenizer.model"));
  const auto tokenizer = open();
  for (const std::uint32_t id : {2500U, 2501U, 2502U, 2503U, 2504U, 2505U}) {
    const std::vector<PromptPiece> content{{std::string(tokenizer->piece(id)), false}};
    EXPECT_EQ(tokenizer->encode(content[0].text), Ids{id});
    EXPECT_EQ(tokenizer->encode_pieces(content) == Ids{id}, id > 2503) << id;
  }
}

TEST_F(TokenizerFolder, TheChatTemplateIsTheFilesOrTheDefaultOne) {
  const std::string folder = scratch_.directory();
  EXPECT_EQ(read_tokenizer_config(folder).chat_template, "");
  write("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(read_tokenizer_config(folder).chat_template, "one");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "other"},
                                                     {"name": "default", "template": "one"}]})");
  EXPECT_EQ(read_tokenizer_config(folder).chat_template, "one");
  write("chat_template.jinja", "of the file");
  EXPECT_EQ(read_tokenizer_config(folder).chat_template, "of the file");
  EXPECT_THAT(read_tokenizer_config(folder).chat_template_file, HasSubstr("chat_template.jinja"));
}

TEST_F(TokenizerFolder, MistakesAreNamed) {
  EXPECT_THAT(refusal(), HasSubstr("has neither tokenizer.model nor tokenizer.json"));
  EXPECT_THAT(message_of([&] { make_tokenizer(scratch_.path("none.json")); }),
              HasSubstr("none.json: cannot open for reading: No such file"));
  write("tokenizer.json", byte_tokenizer_json());
  EXPECT_THAT(refusal_of_config("{"), HasSubstr("tokenizer_config.json: is not a JSON object"));
  EXPECT_THAT(
      refusal_of_config(R"({"eos_token": "</s>"})"),
      HasSubstr("tokenizer_config.json: eos_token: found \"</s>\", expected a special token"));
  EXPECT_THAT(refusal_of_config(R"({"add_bos_token": true})"),
              HasSubstr("bos_token: found \"\", expected a special token of the tokenizer"));
  EXPECT_THAT(refusal_of_config(R"({"add_eos_token": true})"),
              HasSubstr("add_eos_token: found true, expected false: no token follows a prompt"));
  EXPECT_THAT(refusal_of_config(R"({"added_tokens_decoder": {"x": {"content": "a"}}})"),
              HasSubstr("added_tokens_decoder.x: expected an id below 1048576"));
  write("tokenizer_config.json", "{}");
  write("generation_config.json", R"({"eos_token_id": ["</s>"]})");
  EXPECT_THAT(message_of([&] { read_end_tokens(scratch_.directory()); }),
              HasSubstr("generation_config.json: eos_token_id: found [\"</s>\"], expected"));
  testing::write_bytes(scratch_.path("tokenizer.model"), "no model");
  EXPECT_THAT(message_of([&] { make_tokenizer(scratch_.path("tokenizer.model")); }),
              HasSubstr("tokenizer.model: is not a SentencePiece model"));
}

}  // namespace
}  // namespace zero
