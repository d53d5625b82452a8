// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/text_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "launch/data/prepare.h"
#include "launch/data/token_file.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kTokenizers = ZERO_TOKENIZERS;

std::vector<std::uint32_t> tokens_of(const std::vector<std::string>& files) {
  std::vector<std::uint32_t> tokens;
  for (const std::string& path : files) {
    const TokenFile file(path);
    for (std::int64_t i = 0; i < file.count(); ++i) tokens.push_back(file.at(i));
  }
  return tokens;
}

/// Words, white space of all kinds, punctuation and other scripts, in lines.
std::string odd_text(std::size_t pieces) {
  const std::vector<std::string> parts{"the",  " line", "\n",   "\n\n", " \n",  "\n  ", "  ",  ".",
                                       "\t",   "x1",    " 2",   "\r\n", "it's", "(",    ")\n", "é",
                                       "你是", "谁",    "\n你", "…\n",  " a",   "\n"};
  std::mt19937 random(7);
  std::string text = "A text";
  for (std::size_t i = 0; i < pieces; ++i) text += parts[random() % parts.size()];
  return text;
}

TEST(TextEncoder, PartsHaveTheIdsOfTheWhole) {
  const std::string text = odd_text(3000);
  for (const std::string name : {"gpt2", "llama2", "llama3", "qwen2"}) {
    const TextEncoder encoder(kTokenizers + "/" + name, TextEncoder::Special::words);
    int cuts = 0;
    for (std::size_t end = 500; end < text.size(); end += 977) {
      const std::size_t at = encoder.cut(std::string_view(text).substr(0, end));
      if (at == 0) continue;
      ++cuts;
      std::vector<std::uint32_t> parts = encoder.begin(std::string_view(text).substr(0, at));
      for (const std::uint32_t id : encoder.go_on(std::string_view(text).substr(at))) {
        parts.push_back(id);
      }
      ASSERT_EQ(parts, encoder.begin(text)) << name << " at byte " << at;
    }
    EXPECT_GT(cuts, 5) << name;
  }
}

TEST(TextEncoder, ATextWithoutASafePlaceIsNotCut) {
  const TextEncoder encoder(kTokenizers + "/gpt2", TextEncoder::Special::words);
  EXPECT_EQ(encoder.cut(std::string(5000, 'x')), 0U);
  EXPECT_EQ(encoder.cut("a line \n"), 0U) << "what follows is not known";
}

/// prepare() of one text, without validation.
struct Prepared {
  Scratch folder;
  PrepareOptions options{.files = {}, .out = folder.path("out"), .validation = 0};

  std::vector<std::uint32_t> of(const std::string& text) {
    options.files = {folder.write("a.txt", text)};
    Console console(stdout, Console::Mode::silent);
    return tokens_of(prepare(options, console).train_files);
  }
  std::string refusal(const std::string& text) {
    return error_of([&] { of(text); });
  }
};

TEST(TextEncoder, WhatIsNoTextIsNamed) {
  Prepared prepared;
  using namespace std::string_literals;
  EXPECT_THAT(prepared.refusal("\x1f\x8b\x08 and more"s),
              AllOf(HasSubstr("a.txt: is gzip, not a text"), HasSubstr("unpack it first")));
  EXPECT_THAT(prepared.refusal("PAR1..."), HasSubstr("is parquet, not a text"));
  EXPECT_THAT(prepared.refusal("\x88\xd8\x34\x01"s),
              HasSubstr("is a token file, not a text; data.train of zero_train takes it"));
  EXPECT_THAT(prepared.refusal("\xff\xfeh\0i\0"s), HasSubstr("iconv -f UTF-16"));
  prepared.options.tokenizer = kTokenizers + "/gpt2";
  EXPECT_THAT(prepared.refusal("{\"text\": \"a\"}\n{\"text\": \"b\"}\n"),
              HasSubstr("a.txt: is JSON, not a text; of JSON lines --json-field NAME takes"));
  EXPECT_THAT(prepared.refusal("good\nbad \xff\n"),
              HasSubstr("a.txt: byte 9 is not UTF-8; expected a text in UTF-8"));
}

TEST(TextEncoder, ASpecialTokenInATextIsATokenIfAskedFor) {
  Prepared prepared;
  prepared.options.tokenizer = kTokenizers + "/gpt2";
  const TextEncoder words(prepared.options.tokenizer, TextEncoder::Special::words);
  EXPECT_THAT(words.words_like_tokens("a<|endoftext|>b"), ElementsAre("<|endoftext|>"));
  EXPECT_THAT(words.words_like_tokens("a b"), ElementsAre());
  prepared.options.special = true;
  std::vector<std::uint32_t> expected = words.begin("a\n");
  expected.push_back(2500);
  for (const std::uint32_t id : words.begin("b\n")) expected.push_back(id);
  std::vector<std::uint32_t> found = prepared.of("a\n<|endoftext|>b\n");
  found.resize(expected.size());
  EXPECT_EQ(found, expected);
}

TEST(TextEncoder, JsonLinesAreDocuments) {
  Prepared prepared;
  prepared.options.json_field = "text";
  const std::vector<std::uint32_t> tokens =
      prepared.of("{\"text\": \"ab\", \"id\": 1}\n\n{\"id\": 2, \"text\": \"\\u0063\"}");
  EXPECT_THAT(tokens, ElementsAre('a', 'b', 'c'));
  EXPECT_THAT(prepared.refusal("{\"text\": \"ab\"}\n{\"txt\": \"c\"}\n"),
              HasSubstr("a.txt: line 2: text is missing, expected a text"));
  EXPECT_THAT(prepared.refusal("ab\n"), HasSubstr("a.txt: line 1: expected a JSON object"));
}

TEST(TextEncoder, ALineThatIsNoJsonObjectSaysWhy) {
  Prepared prepared;
  prepared.options.json_field = "text";
  const std::pair<const char*, const char*> cases[] = {
      {"[{\"text\": \"a\"},\n{\"text\": \"b\"}]\n",
       "line 1: expected a JSON object in UTF-8; it "
       "begins a JSON array: write its members"},
      {"{\n  \"text\": \"a\"\n}\n",
       "line 1: expected a JSON object in UTF-8; the object goes on "
       "in the next line: write each on a line"},
      {"{\"text\": \"a\"}\n{\"text\": \"b",
       "line 2: expected a JSON object in UTF-8; the file ends "
       "within the object: fetch it again"},
      {"{\"text\": \"a\", \"id\": NaN}\n", "; NaN at byte 20 is no value of JSON: write null"},
      {"{\"id\": -Infinity, \"text\": \"a\"}\n", "; Infinity at byte 8 is no value of JSON"},
      {"{\"text\": \"a\\ud83d b\"}\n", "is half a pair of surrogates (\\ud800 to \\udfff)"},
      {"{\"text\": \"\xff\"}\n", "; byte 10 of the line is not UTF-8"}};
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(prepared.refusal(text), HasSubstr(expected));
  }
}

TEST(TextEncoder, SpecialTokensThatStayWordsInJsonLinesAreSaid) {
  Prepared prepared;
  prepared.options.tokenizer = kTokenizers + "/gpt2";
  prepared.options.json_field = "text";
  prepared.options.files = {prepared.folder.write(
      "a.jsonl",
      "{\"text\": \"a\"}\n{\"text\": \"<|endoftext|>\"}\n{\"text\": \"<|endoftext|>\"}\n")};
  std::FILE* const out = std::tmpfile();
  ASSERT_NE(out, nullptr);
  {
    Console console(out, Console::Mode::lines);
    prepare(prepared.options, console);
  }
  std::rewind(out);
  std::string said(4096, '\0');
  said.resize(std::fread(said.data(), 1, said.size(), out));
  std::fclose(out);
  const std::string line =
      "a.jsonl: <|endoftext|> in it stay words; with --special they are the tokenizer's tokens\n";
  ASSERT_THAT(said, HasSubstr(line));
  EXPECT_EQ(said.find(line), said.rfind(line)) << "once a file";
}

// As a prompt begins, and as transformers' tokenizers put it before each text.
TEST(TextEncoder, DocumentsBeginAndEndAsTheTokenizerSays) {
  Prepared prepared;
  std::filesystem::copy_file(kTokenizers + "/llama2/tokenizer.json",
                             prepared.folder.path("tokenizer.json"));
  prepared.folder.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  prepared.options.tokenizer = prepared.folder.path();
  const TextEncoder encoder(prepared.options.tokenizer, TextEncoder::Special::words);
  EXPECT_EQ(encoder.names_of(encoder.tokens_before()), "<s> (1)");
  const auto document = [&](const std::string& text, bool begins = true) {
    std::vector<std::uint32_t> ids = encoder.begin(text);
    if (begins) ids.insert(ids.begin(), 1);
    ids.push_back(2);
    return ids;
  };
  EXPECT_EQ(prepared.of("some text"), document("some text"));
  prepared.options.special = true;
  EXPECT_EQ(prepared.of("<s>some text</s>"), document("some text")) << "no token twice";
  EXPECT_EQ(prepared.of("some text"), document("some text"));
  prepared.options.special = false;
  prepared.options.json_field = "text";
  std::vector<std::uint32_t> both = document("a");
  for (const std::uint32_t id : document("b c")) both.push_back(id);
  EXPECT_EQ(prepared.of("{\"text\": \"a\"}\n{\"text\": \"b c\"}\n"), both);
  prepared.options.no_bos = true;
  EXPECT_EQ(prepared.of("{\"text\": \"a\"}"), document("a", false));
  Console console(stdout, Console::Mode::silent);
  EXPECT_EQ(prepare(prepared.options, console).before, "");
  prepared.options.no_bos = false;
  const PrepareReport report = prepare(prepared.options, console);
  EXPECT_EQ(report.before, "<s> (1)");
  EXPECT_EQ(report.behind, "</s> (2)");
}

}  // namespace
}  // namespace zero::testing
