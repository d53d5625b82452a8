// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/sentencepiece_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "tests/errors.h"
#include "tests/scratch.h"
#include "text/sentencepiece_tokenizer.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::uint32_t kLeaf = 1U << 31U;
constexpr int kUnknown = 2;
constexpr int kUserDefined = 4;

std::uint32_t edge(unsigned char label, std::uint32_t offset, std::uint32_t ends_key) {
  return offset << 10U | ends_key << 8U | label;
}

/// A message of Protocol Buffers.
std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7U) bytes += static_cast<char>(0x80U | (value & 0x7fU));
  return bytes + static_cast<char>(value);
}
std::string field(unsigned number, const std::string& bytes) {
  return varint(number << 3U | 2U) + varint(bytes.size()) + bytes;
}
std::string piece(const std::string& text, float score, int type = 1) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &score, 4);
  return field(1, field(1, text) + varint(2U << 3U | 5U) + bytes + varint(3U << 3U) +
                      varint(static_cast<std::uint64_t>(type)));
}

const std::string kPieces =
    piece("<unk>", 0, kUnknown) + piece("\u2581", -3) + piece("b", -3) + piece("\u2581b", -1);

/// A map of "a" to "b", whose parts tests change. Unit 0 leads to node 1, whose edge "a" is unit
/// 0x60 and leads to node 2, which is a leaf.
struct Charsmap {
  Charsmap() : units(256, kLeaf) {  // whose label is no byte
    units[0] = edge(0, 1, 0);
    units[0x60] = edge('a', 0x62, 1);
    units[2] = kLeaf;
  }
  std::string bytes() const {
    std::string trie(4 * units.size(), '\0');
    std::memcpy(trie.data(), units.data(), trie.size());
    const auto length = static_cast<std::uint32_t>(trie.size());
    std::string head(4, '\0');
    std::memcpy(head.data(), &length, 4);
    return head + trie + texts;
  }
  std::string model(unsigned normalizer = 3) const {
    return kPieces + field(normalizer, field(2, bytes()));
  }
  std::string refusal() const {
    return error_of([&] { check_sentencepiece_model("f.model", model()); });
  }

  std::vector<std::uint32_t> units;
  std::string texts{"b\0", 2};
};

std::string refusal(const std::string& model) {
  return error_of([&] { check_sentencepiece_model("f.model", model); });
}

TEST(SentencePieceModel, ItsCharsmapIsFollowed) {
  const auto tokenizer = make_sentencepiece_tokenizer("f.model", Charsmap().model(), {.file = ""});
  EXPECT_EQ(tokenizer->encode("a"), std::vector<std::uint32_t>{3});
  EXPECT_EQ(tokenizer->encode("aa"), (std::vector<std::uint32_t>{3, 2}));
}

TEST(SentencePieceModel, UnitsThatLeadOutOfTheTrieAreRefused) {
  Charsmap map;
  map.units[0] = edge(0, 0x1000, 0);
  EXPECT_THAT(map.refusal(),
              AllOf(StartsWith("f.model: normalizer_spec.precompiled_charsmap: unit 0 of the trie "
                               "leads to unit 4096, expected one of 256; the file is damaged"),
                    HasSubstr("give the model's tokenizer.json")));
  map = {};
  map.units[0x60] = edge('a', 0x1fffff, 1);
  EXPECT_THAT(map.refusal(), HasSubstr("unit 96 of the trie leads to unit 2097055"));
  map = {};
  map.units[2] = kLeaf | 2U;
  EXPECT_THAT(map.refusal(), HasSubstr("the trie has a text at byte 2 of 2"));
  map = {};
  map.units[0x60] = edge('a', 0x61, 1);  // to node 1 again
  EXPECT_THAT(map.refusal(), HasSubstr("unit 96 of the trie leads back to a unit above"));
  EXPECT_THAT(error_of([&] { check_sentencepiece_model("f.model", map.model(5)); }),
              StartsWith("f.model: denormalizer_spec.precompiled_charsmap: unit 96"));
}

TEST(SentencePieceModel, LengthsAndTextsOfACharsmapAreChecked) {
  Charsmap map;
  map.texts = "b";
  EXPECT_THAT(map.refusal(), HasSubstr("the text at byte 0 has no end within 256 bytes"));
  map.texts = std::string(300, 'b') + '\0';
  EXPECT_THAT(map.refusal(), HasSubstr("the text at byte 0 has no end within 256 bytes"));
  map.texts = std::string("\xff\0", 2);
  EXPECT_THAT(map.refusal(), HasSubstr("the text at byte 0 is not UTF-8"));
  map.texts = "";
  EXPECT_THAT(map.refusal(), HasSubstr("the trie has 1024 bytes of 1024, expected a multiple"));
  map = {};
  map.units.pop_back();
  EXPECT_THAT(map.refusal(), HasSubstr("the trie has 1020 bytes of 1022, expected a multiple"));
  EXPECT_THAT(refusal(kPieces + field(3, field(2, "abcd"))),
              HasSubstr("precompiled_charsmap: has 4 bytes, expected a trie and its texts"));
}

/// "a", "aa", ... up to `count` of them: node 256 * i, whose edge leads on.
std::string model_of_prefixes(std::uint32_t count) {
  Charsmap map;
  map.units.assign(256 * (count + 2), kLeaf);
  map.units[0] = edge(0, 256, 0);
  for (std::uint32_t i = 1; i <= count; ++i) {
    const std::uint32_t at = 256 * i ^ 'a';
    map.units[at] = edge('a', at ^ 256 * (i + 1), 1);
    map.units[256 * (i + 1)] = kLeaf;
  }
  return map.model();
}

TEST(SentencePieceModel, TextsWithMorePrefixesThanTheLibraryKeepsAreRefused) {
  const auto tokenizer =
      make_sentencepiece_tokenizer("f.model", model_of_prefixes(32), {.file = ""});
  EXPECT_EQ(tokenizer->encode(std::string(40, 'a')), (std::vector<std::uint32_t>{3, 2}));
  EXPECT_THAT(refusal(model_of_prefixes(33)),
              HasSubstr("the trie has a text with more than 32 prefixes"));
}

TEST(SentencePieceModel, PiecesAreChecked) {
  EXPECT_THAT(refusal(kPieces + piece(std::string("x\0y", 3), 0)),
              StartsWith("f.model: pieces[4].piece: has 3 bytes with a NUL, expected 1 to 2048"));
  EXPECT_THAT(refusal(kPieces + piece("", 0)), HasSubstr("pieces[4].piece: has 0 bytes"));
  EXPECT_THAT(refusal(kPieces + piece(std::string(2049, 'x'), 0)), HasSubstr("has 2049 bytes"));
  EXPECT_THAT(refusal(kPieces + piece("x", std::numeric_limits<float>::quiet_NaN())),
              HasSubstr("pieces[4].score: found nan, expected a finite number"));
  std::string nested = kPieces;
  for (std::size_t i = 1; i <= 64; ++i) nested += piece(std::string(i, 'x'), 0, kUserDefined);
  EXPECT_EQ(refusal(nested), "no error");
  EXPECT_THAT(refusal(nested + piece(std::string(65, 'x'), 0, kUserDefined)),
              HasSubstr("found more than 64 user-defined pieces that begin one another"));
}

TEST(SentencePieceModel, BytesThatAreNoMessageAreRefused) {
  const std::string not_one =
      "f.model: is not a SentencePiece model; give \"bytes\", a .model file";
  for (const std::string& model :
       {std::string(), std::string("no model"), kPieces.substr(0, kPieces.size() - 1),
        kPieces + "\x0b\x0c", kPieces + std::string(11, '\xff'), kPieces + varint(3U << 3U) + "a",
        kPieces + field(2, "\xff"), kPieces + std::string("\x9a\x80\x80\x80\x10\x00", 6)}) {
    EXPECT_THAT(refusal(model), StartsWith(not_one));
  }
  EXPECT_THAT(
      error_of([] {
        make_sentencepiece_tokenizer("f.model", piece("\x1b[31m", 0) + piece("\x1b[31m", 0),
                                     {.file = ""});
      }),
      AllOf(StartsWith("f.model: is not a SentencePiece model: "), HasSubstr("?[31m is already")));
}

TEST(SentencePieceModel, SelfTestsAreLeftOut) {
  const std::string sample = field(1, field(1, "a") + field(2, "\x1b[31m"));
  EXPECT_EQ(check_sentencepiece_model("f.model", kPieces + field(4, sample)).bytes, kPieces);
}

TEST(SentencePieceModel, MessagesOfAChatCannotWriteItsSteeringPieces) {
  const std::string model =
      kPieces + piece("<|u|>", 0, kUserDefined) + piece("bb", 0, kUserDefined);
  const auto tokenizer = make_sentencepiece_tokenizer("f.model", model, {});
  const auto encode = [&](const std::string& written, const std::string& message) {
    return tokenizer->encode_pieces(std::vector<PromptPiece>{{written, true}, {message, false}});
  };
  const std::vector<std::uint32_t> ids = encode("<|u|>", "bb");
  EXPECT_EQ(1, std::ranges::count(ids, 4U));
  EXPECT_EQ(1, std::ranges::count(ids, 5U));
  EXPECT_THAT(error_of([&] { encode("a bb", "bb"); }),  // the template composed it
              HasSubstr("a message contains or completes \"bb\""));
  const std::vector<PromptPiece> halves{{"<|", true}, {"", false}, {"u|>", true}};
  EXPECT_THAT(error_of([&] { tokenizer->encode_pieces(halves); }),
              HasSubstr("a message contains or completes \"<|u|>\""));
  EXPECT_THAT(
      error_of([&] { encode("b", "b<|u|>b"); }),
      AllOf(HasSubstr("a message contains or completes \"<|u|>\""), HasSubstr("with --special")));
}

}  // namespace
}  // namespace zero
