// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/sign_of_life.h"
#include "tests/errors.h"
#include "text/bpe_tokenizer.h"
#include "text/byte_level.h"
#include "text/merges.h"

namespace zero {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::uint32_t>;

std::unique_ptr<Tokenizer> tokenizer_of(const json& file) {
  return make_bpe_tokenizer("f/tokenizer.json", file.dump(), {.file = "f/tokenizer_config.json"});
}

json byte_file() { return json::parse(byte_tokenizer_json()); }

/// `change` is a JSON patch of byte_tokenizer_json().
std::string refusal(const char* change) {
  return error_of([&] { tokenizer_of(byte_file().patch(json::parse(change))); });
}

TEST(ByteTokenizerJson, HasBytesAsIds) {
  const auto tokenizer = tokenizer_of(byte_file());
  EXPECT_EQ(tokenizer->vocabulary(), 256);
  EXPECT_EQ(tokenizer->end_of_document(), -1);
  std::string text = "Any text: \n\t e\u0301\u4e16\U0001F44D 's  ";
  text += '\0';
  EXPECT_EQ(tokenizer->encode(text), make_tokenizer("bytes")->encode(text));
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(tokenizer->piece(byte), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(tokenizer->encode("a\xff"), tokenizer->encode("a\ufffd"));
}

TEST(TokenizerJson, RefusesWhatIsNotComputed) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {R"([{"op": "replace", "path": "/model/type", "value": "Unigram"}])",
       "f/tokenizer.json: model.type: found \"Unigram\", expected \"BPE\""},
      {R"([{"op": "replace", "path": "/model/dropout", "value": 0.1}])",
       "model.dropout: found 0.1, expected 0.0: the same text"},
      {R"([{"op": "replace", "path": "/model/end_of_word_suffix", "value": "</w>"}])",
       "model.end_of_word_suffix: found \"</w>\", expected \"\""},
      {R"([{"op": "remove", "path": "/model/vocab/a"}])",
       "model.vocab: has no token a, expected one for each byte"},
      {R"([{"op": "replace", "path": "/model/vocab/a", "value": -1}])",
       "model.vocab: found -1, expected an id below 1048576"},
      {R"([{"op": "replace", "path": "/model/merges", "value": ["a b"]}])",
       "model.merges: found \"a b\", expected \"left right\" of which left, right and both"},
      {R"([{"op": "replace", "path": "/model/merges", "value": [["a", 1]]}])",
       "model.merges: found [\"a\",1], expected"},
      {R"([{"op": "add", "path": "/model/new", "value": 1}])",
       "model.new: found 1, expected no field of that name"},
      {R"([{"op": "replace", "path": "/normalizer", "value": {"type": "Lowercase"}}])",
       "normalizer.type: found \"Lowercase\", expected NFC"},
      {R"([{"op": "replace", "path": "/pre_tokenizer", "value": null}])",
       "pre_tokenizer: found no ByteLevel, expected it"},
      {R"([{"op": "replace", "path": "/pre_tokenizer/type", "value": "Whitespace"}])",
       "pre_tokenizer.type: found \"Whitespace\", expected Split, Digits or ByteLevel"},
      {R"([{"op": "replace", "path": "/pre_tokenizer", "value": {"type": "Sequence",
           "pretokenizers": [{"type": "Split", "behavior": "MergedWithNext", "invert": false,
           "pattern": {"Regex": "a"}}]}}])",
       "pre_tokenizer.pretokenizers.behavior: found MergedWithNext, expected Isolated or Removed"},
      {R"([{"op": "replace", "path": "/pre_tokenizer", "value": {"type": "Sequence",
           "pretokenizers": [{"type": "Digits"}, {"type": "ByteLevel"}]}}])",
       "add_prefix_space: found true behind another pre-tokenizer, expected false"},
      {R"([{"op": "replace", "path": "/pre_tokenizer", "value": {"type": "Sequence",
           "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]}}])",
       "found Digits behind ByteLevel or Metaspace, expected these last"},
      {R"([{"op": "replace", "path": "/decoder/type", "value": "WordPiece"}])",
       "decoder.type: found \"WordPiece\", expected ByteLevel"},
      {R"([{"op": "replace", "path": "/post_processor", "value": {"type": "BertProcessing"}}])",
       "post_processor.type: found \"BertProcessing\", expected ByteLevel or TemplateProcessing"},
      {R"([{"op": "replace", "path": "/post_processor", "value": {"type": "TemplateProcessing",
           "single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "</s>"}}]}}])",
       "post_processor.single: expected nothing behind the text"},
      {R"([{"op": "add", "path": "/added_tokens/-", "value": {"id": 1.5, "content": "x"}}])",
       "added_tokens.id: found 1.5, expected an id below 1048576"},
      {R"([{"op": "add", "path": "/added_tokens/-", "value": 7}])",
       "added_tokens: found 7, expected an object"},
      {R"([{"op": "replace", "path": "/model/byte_fallback", "value": true}])",
       "model.vocab: has no token <0x00>, expected one for each byte"}};
  for (const auto& [change, expected] : cases) EXPECT_THAT(refusal(change), HasSubstr(expected));
  EXPECT_THAT(error_of([] { make_bpe_tokenizer("f.json", "[1]", {.file = ""}); }),
              HasSubstr("f.json: is not a JSON object of at most 100 levels"));
}

TEST(TokenizerJson, RefusesPatternsThatLibrariesReadDifferently) {
  const auto refusal_of = [](const std::string& pattern) {
    json file = byte_file();
    file["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
    return error_of([&] { tokenizer_of(file); });
  };
  for (const char* known : {R"(\p{L}+|[^\s\d\\\]]?(?i:'s)|\p{Han}|x{1,3}|(?!\S)|(a|b)++)"}) {
    EXPECT_EQ(refusal_of(known), "no error");
  }
  for (const char* unknown :
       {R"(\w+)", R"(\h)", R"(\b)", R"(\1)", R"(\)", R"(\pL)", R"(\p{^L})", R"([a&&b])",
        "[[:alpha:]]", "(?<=a)", "(?i)a", "(*UCP)a", "a{,3}", "a{2}+", "a{2}?"}) {
    EXPECT_THAT(refusal_of(unknown),
                HasSubstr("which libraries of regular expressions read differently"))
        << unknown;
  }
  EXPECT_THAT(refusal_of("(a"),
              HasSubstr("pattern.Regex: is no pattern: missing closing parenthesis"));
  EXPECT_THAT(refusal_of(""), HasSubstr("has 0 bytes, expected 1 to 10000 bytes"));
}

TEST(TokenizerJson, SplitsAsItsBehaviourSays) {
  const auto ids = [](bool removed, bool invert, const std::string& text) {
    json file = byte_file();
    file["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers",
                              {{{"type", "Split"},
                                {"pattern", {{"Regex", "\\d*"}}},
                                {"behavior", removed ? "Removed" : "Isolated"},
                                {"invert", invert}},
                               {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}};
    return tokenizer_of(file)->decode(tokenizer_of(file)->encode(text));
  };
  EXPECT_EQ(ids(false, false, "a12b3"), "a12b3");
  EXPECT_EQ(ids(true, false, "a12b3"), "ab");
  EXPECT_EQ(ids(true, true, "a12\u00e9b3"), "123");
}

TEST(TokenizerJson, APrefixSpaceIsPutBeforeEachPart) {
  json file = byte_file();
  file["pre_tokenizer"]["add_prefix_space"] = true;
  file["added_tokens"] = {{{"id", 300}, {"content", "<x>"}, {"special", true}}};
  const auto tokenizer = tokenizer_of(file);
  EXPECT_EQ(
      tokenizer->decode(tokenizer->encode_pieces(std::vector<PromptPiece>{{"a<x> b<x>c", true}})),
      " a b c");
  EXPECT_EQ(tokenizer->vocabulary(), 301);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("<x>")), " <x>");  // a user's words
}

// Without this a user could end a message and write one of the system or the assistant.
TEST(TokenizerJson, SpecialTokensActInTheTemplatesPiecesAlone) {
  json file = byte_file();
  for (const bool normalized : {false, true}) {
    file["normalizer"] = {{"type", "NFC"}};
    file["added_tokens"] = {
        {{"id", 300}, {"content", "<x>"}, {"special", true}, {"normalized", normalized}},
        {{"id", 301}, {"content", "e>\u00e9<"}, {"special", true}, {"normalized", normalized}}};
    const auto tokenizer = tokenizer_of(file);
    const auto ids = [&](const std::vector<PromptPiece>& pieces) {
      return tokenizer->encode_pieces(pieces);
    };
    const auto text = [&](const std::string& words) { return tokenizer->encode(words); };
    EXPECT_EQ(ids({{"<x>", true}}), Ids{300});
    EXPECT_EQ(ids({{"<", true}, {"x>", true}}), Ids{300});
    EXPECT_EQ(ids({{"<x>", false}}), text("<x>"));
    EXPECT_EQ(ids({{"<", false}, {"x>", true}}), text("<x>"));
    EXPECT_EQ(ids({{"<x", true}, {">", false}}), text("<x>"));
    // e U+0301 becomes U+00E9: ranges move with the text. A user's words swallow no template's.
    Ids expected{300};
    for (const std::uint32_t id : text("e\u0301<x>e>\u00e9")) expected.push_back(id);
    expected.push_back(300);
    EXPECT_EQ(ids({{"<x>", true}, {"e\u0301<x>e>\u00e9", false}, {"<x>", true}}), expected);
  }
}

// The words of two pieces are cut as those of one text, as transformers cuts them.
TEST(TokenizerJson, PiecesAreOneText) {
  const auto tokenizer = make_tokenizer(std::string(ZERO_TOKENIZERS) + "/gpt2");
  const std::string turn = "user\n\n\nWhy is it so?\n";
  for (std::size_t cut = 0; cut <= turn.size(); ++cut) {
    EXPECT_EQ(tokenizer->encode_pieces(
                  std::vector<PromptPiece>{{turn.substr(0, cut), true}, {turn.substr(cut), false}}),
              tokenizer->encode(turn));
  }
}

/// Token 0 is U+2581, token n + 1 byte n.
json fallback_file() {
  json file = byte_file();
  json vocabulary{{"\u2581", 0}};
  for (int byte = 0; byte < 256; ++byte) vocabulary[fmt::format("<0x{:02X}>", byte)] = byte + 1;
  file["model"]["vocab"] = vocabulary;
  file["model"]["byte_fallback"] = true;
  file["decoder"] = nullptr;
  return file;
}

// As in every tokenizer.json of Gemma's: without a space there is nothing to split at.
TEST(TokenizerJson, TakesGemmasSplitBehindTheReplacementOfSpaces) {
  json file = fallback_file();
  const json split{{"type", "Split"},
                   {"pattern", {{"String", " "}}},
                   {"behavior", "MergedWithPrevious"},
                   {"invert", false}};
  file["pre_tokenizer"] = split;
  EXPECT_THAT(error_of([&] { tokenizer_of(file); }),
              HasSubstr("pre_tokenizer.type: found \"Split\", expected Metaspace"));
  file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  EXPECT_THAT(tokenizer_of(file)->encode(" a  b"), ElementsAre(0, 'a' + 1, 0, 0, 'b' + 1));
  for (const auto& [field, other] : std::map<std::string, json>{
           {"pattern", json{{"String", "a"}}}, {"behavior", "Isolated"}, {"invert", true}}) {
    file["pre_tokenizer"] = split;
    file["pre_tokenizer"][field] = other;
    EXPECT_THAT(error_of([&] { tokenizer_of(file); }),
                AllOf(HasSubstr("pre_tokenizer." + field + ": found "),
                      HasSubstr("behind a normalizer that replaces spaces")));
  }
}

TEST(TokenizerJson, MetaspacePutsASpaceFirstOrEverywhere) {
  json file = fallback_file();
  file["added_tokens"] = {{{"id", 300}, {"content", "<x>"}, {"special", true}}};
  const auto decoded = [&](const char* scheme) {
    file["pre_tokenizer"] = {{"type", "Metaspace"},
                             {"replacement", "\u2581"},
                             {"prepend_scheme", scheme},
                             {"split", false}};
    const auto tokenizer = tokenizer_of(file);
    return tokenizer->decode(
        tokenizer->encode_pieces(std::vector<PromptPiece>{{"a<x>b<x> c", true}}));
  };
  EXPECT_EQ(decoded("first"), " ab c");
  EXPECT_EQ(decoded("always"), " a b c");
  EXPECT_EQ(decoded("never"), "ab c");
  EXPECT_THAT(error_of([&] { decoded("last"); }),
              HasSubstr("prepend_scheme: found last, expected first, always or never"));
  file["pre_tokenizer"] = nullptr;
  EXPECT_THAT(error_of([&] { tokenizer_of(file); }),
              HasSubstr("normalizer: found no replacement of spaces by U+2581"));
}

json file_with_pattern(const std::string& pattern) {
  json file = byte_file();
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  return file;
}

// Each word of 20 letters takes a million steps: few enough for a match, too many for a text.
TEST(TokenizerJson, APatternMayTakeStepsInProportionToTheText) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "aaaaaaaaaaaaaaaaaaaac b";
  const auto costly = tokenizer_of(file_with_pattern("(a+)+b"));
  EXPECT_EQ(costly->encode("aaab aab").size(), 8U);
  EXPECT_THAT(
      error_of([&] { costly->encode(text); }),
      HasSubstr("f/tokenizer.json: pre_tokenizer.pretokenizers.pattern.Regex: the pattern "
                "(a+)+b goes back and forth too often in 46000 bytes of text: match limit"));
  const char* const qwen2 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
      R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const auto usual = tokenizer_of(file_with_pattern(qwen2));
  for (const char* part : {" ", "a", " \n", "\n", "!", "7", " a", "\u3000", "  x"}) {
    std::string long_text;
    while (long_text.size() < 100'000) long_text += part;
    EXPECT_EQ(usual->decode(usual->encode(long_text)), long_text) << part;
  }
}

TEST(TokenizerJson, KnowsHowManyBytesATokenCovers) {
  json file = byte_file();
  EXPECT_EQ(tokenizer_of(file)->most_bytes_of_token(), 1U);
  file["added_tokens"] = {{{"id", 300}, {"content", "<long>"}, {"special", true}}};
  EXPECT_EQ(tokenizer_of(file)->most_bytes_of_token(), 6U);
  EXPECT_EQ(tokenizer_of(file)->bytes_of_tokens(" a \u3000"), 6U);
  file["added_tokens"][0]["lstrip"] = true;
  EXPECT_EQ(tokenizer_of(file)->bytes_of_tokens(" a \u3000"), 1U);
  file["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(tokenizer_of(file)->most_bytes_of_token(), 18U);
  json removes = file_with_pattern("a");
  removes["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed";
  EXPECT_EQ(tokenizer_of(removes)->most_bytes_of_token(), 0U);
}

TEST(Merges, AreAppliedInOrderAndFromTheLeft) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    Merges merges;
    std::vector<std::array<std::uint32_t, 3>> pairs;
    for (std::uint32_t merged = 3; merged < 20; ++merged) {
      pairs.push_back({static_cast<std::uint32_t>(random() % merged),
                       static_cast<std::uint32_t>(random() % merged), merged});
      const auto same = std::ranges::find_if(pairs, [&](const auto& pair) {
        return pair[0] == pairs.back()[0] && pair[1] == pairs.back()[1];
      });
      if (same + 1 != pairs.end()) {
        pairs.pop_back();
      } else {
        merges.add(pairs.back()[0], pairs.back()[1], merged);
      }
    }
    Ids ids(random() % 60);
    for (auto& id : ids) id = random() % 3;
    Ids expected = ids;
    for (bool merged = true; std::exchange(merged, false);) {
      for (const auto& [left, right, both] : pairs) {
        const std::array pair{left, right};
        const auto at = std::ranges::search(expected, pair).begin();
        if (at == expected.end()) continue;
        *at = both;
        expected.erase(at + 1);
        merged = true;
        break;
      }
    }
    merges.apply(ids);
    ASSERT_EQ(ids, expected);
  }
}

TEST(Merges, AWordOfAMillionBytesTakesNoTimeToSpeakOf) {
  Merges merges;
  for (std::uint32_t id = 0; id < 20; ++id) merges.add(id, id, id + 1);
  Ids ids((1U << 20U) + 5, 0);
  const std::int64_t before = signs_of_life();
  merges.apply(ids);
  EXPECT_THAT(ids, ElementsAre(20, 2, 0));
  EXPECT_GE(signs_of_life() - before, 32) << "for a watchdog, which knows no long words";
}

// A watchdog would take the work on a prompt of megabytes for an endless loop.
TEST(TokenizerJson, GivesSignsOfLifeInLongTexts) {
  constexpr std::size_t kParts = 3 << 16;
  const auto signs = [](const json& file, const std::string& text) {
    const auto tokenizer = tokenizer_of(file);
    const std::int64_t before = signs_of_life();
    tokenizer->encode(text);
    return signs_of_life() - before;
  };
  json word = fallback_file();
  word["pre_tokenizer"] = nullptr;
  word["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  EXPECT_GE(signs(word, std::string(kParts, 'a')), 3 + 2) << "characters, and pairs of them";
  std::string words;
  for (std::size_t i = 0; i < kParts; ++i) words += "a ";
  EXPECT_GE(signs(byte_file(), words), 3 + 2) << "matches of the pattern, and words";
}

}  // namespace
}  // namespace zero
