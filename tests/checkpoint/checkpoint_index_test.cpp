// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

#include "tests/errors.h"

namespace zero {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

CheckpointIndex sample() {
  CheckpointIndex index{.step = 500, .steps_skipped = 3};
  index.files = {{"weights/model.safetensors", 1100000, {0x01020304, 0xfffefdfc}},
                 {"weights/config.json", 5, {7}},
                 {"weights/empty", 0, {}},
                 {"moments/moment0.safetensors", 140, {9}}};
  index.tensors = {{"a", {2, 3}, StateKind::parameter, 0, 104},
                   {"b \"quoted\"", {}, StateKind::parameter, 0, 128},
                   {"none", {0}, StateKind::parameter, 0, 132},
                   {"a", {2, 3}, StateKind::moment0, 3, 104}};
  index.extra = {{"z", 1}, {"a", {1.5, -2, nullptr, true, "text"}}};
  return index;
}

TEST(CheckpointIndex, IsReadAsWritten) {
  const CheckpointIndex index = sample();
  const std::string text = checkpoint_index_text(index);
  const CheckpointIndex read = parse_checkpoint_index("index.json", text);
  EXPECT_EQ(read.step, 500);
  EXPECT_EQ(read.steps_skipped, 3);
  ASSERT_EQ(read.files.size(), 4U);
  EXPECT_EQ(read.files[0].name, "weights/model.safetensors");
  EXPECT_EQ(read.files[0].bytes, 1100000);
  EXPECT_EQ(read.files[0].crcs, index.files[0].crcs);
  EXPECT_TRUE(read.files[2].crcs.empty());
  ASSERT_EQ(read.tensors.size(), 4U);
  EXPECT_EQ(read.tensors[1].name, "b \"quoted\"");
  EXPECT_EQ(read.tensors[1].count(), 1);
  EXPECT_EQ(read.tensors[3].kind, StateKind::moment0);
  EXPECT_EQ(read.tensors[3].file, 3U);
  EXPECT_EQ(read.tensors[3].offset, 104);
  EXPECT_EQ(read.extra, index.extra);
  EXPECT_EQ(read.extra.begin().key(), "z") << "the trainer's order stays";
  EXPECT_EQ(checkpoint_index_text(read), text);
}

// The format is on disks: its bytes do not change.
TEST(CheckpointIndex, HasTheseBytes) {
  CheckpointIndex index{.step = 7, .steps_skipped = 2};
  index.files = {{"weights/model.safetensors", 24, {0xabc}}};
  index.tensors = {{"a", {2, 1}, StateKind::parameter, 0, 16}};
  index.extra = {{"loss", 0.5}};
  const std::string text =
      "{\n\"format\": 1,\n\"step\": 7,\n\"steps_skipped\": 2,\n\"tensors\": [\n"
      "{\"name\":\"a\",\"shape\":[2,1],\"kind\":\"parameter\",\"dtype\":\"F32\","
      "\"file\":\"weights/model.safetensors\",\"offset\":16}\n],\n\"files\": [\n"
      "{\"name\":\"weights/model.safetensors\",\"bytes\":24,\"crc32c\":\"00000abc\"}\n],\n"
      "\"extra\": {\"loss\":0.5}\n}\n";
  EXPECT_EQ(checkpoint_index_text(index), text);
  EXPECT_EQ(commit_line(text), "zero checkpoint 1 1b6f6210bce64e2e5642e27eab9e0673\n");
}

/// A change of the text of an index, and what its refusal must say.
struct Lie {
  std::string name;
  std::string from;
  std::string to;
  std::string expected;

  friend void PrintTo(const Lie& lie, std::ostream* out) { *out << lie.to; }
};

class LyingIndex : public ::testing::TestWithParam<Lie> {};

TEST_P(LyingIndex, IsRefusedNamingTheField) {
  std::string text = checkpoint_index_text(sample());
  const std::size_t at = text.find(GetParam().from);
  ASSERT_NE(at, text.npos);
  text.replace(at, GetParam().from.size(), GetParam().to);
  const std::string error = error_of([&] { parse_checkpoint_index("s/index.json", text); });
  EXPECT_THAT(error, StartsWith("s/index.json: "));
  EXPECT_THAT(error, HasSubstr(GetParam().expected));
}

const std::string kBig = "9223372036854775808";

INSTANTIATE_TEST_SUITE_P(
    Form, LyingIndex,
    ::testing::Values(
        Lie{"Cut", "\"extra\"", "", "is not a JSON object"},
        Lie{"NotJson", "{", "x", "is not a JSON object"},
        Lie{"Version", "\"format\": 1", "\"format\": 2", "format: found version 2, expected 1"},
        Lie{"Skipped", "\"steps_skipped\": 3", "\"steps_skipped\": 501",
            "steps_skipped: found 501, expected at most 500, the step"},
        Lie{"VersionText", "\"format\": 1", "\"format\": \"1\"", "found version \"1\", expected 1"},
        Lie{"VersionMissing", "\"format\": 1,", "", "format is missing"},
        Lie{"Unknown", "\"step\"", "\"more\": 1,\n\"step\"", "more: unknown field"},
        Lie{"Missing", "\"step\": 500,\n", "", "step is missing"},
        Lie{"Twice", "\"step\"", "\"step\": 500,\n\"step\"", "differs from the text"},
        Lie{"Space", "\"step\": 500", "\"step\":  500", "offset 23: differs from the text"},
        Lie{"End", "}\n}\n", "}\n}", "differs from the text"},
        Lie{"StepNegative", "500", "-500", "step: found -500, expected a whole number from 0"},
        Lie{"StepFraction", "500", "500.0", "step: found 500.0, expected a whole number"},
        Lie{"StepLarge", "500", kBig, "step: found " + kBig + ", expected a whole number from 0"},
        Lie{"StepText", "500", "\"500\"", "step: found \"500\", expected a whole number"},
        Lie{"TensorsObject", "\"tensors\": [", "\"tensors\": {}, \"x\": [", "x: unknown field"},
        Lie{"FileText", "{\"name\":\"weights/config.json\",\"bytes\":5,\"crc32c\":\"00000007\"}",
            "5", "files[1]: found 5, expected an object"},
        Lie{"ExtraZeros", "1.5", "1.50", "differs from the text"}),
    [](const auto& lie) { return lie.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Files, LyingIndex,
    ::testing::Values(
        Lie{"Leaves", "\"name\":\"weights/config.json\"", "\"name\":\"../config.json\"",
            "files[1].name: found \"../config.json\", expected weights/* or moments/*.safetensors"},
        Lie{"SmallMoments", "\"name\":\"weights/config.json\"", "\"name\":\"moments/config.json\"",
            "files[1].name: found \"moments/config.json\", expected weights/* or moments/*.safe"},
        Lie{"LeavesBelow", "\"name\":\"weights/config.json\"", "\"name\":\"weights/../../x\"",
            "files[1].name"},
        Lie{"Parent", "\"name\":\"weights/config.json\"", "\"name\":\"weights/..\"",
            "files[1].name"},
        Lie{"Absolute", "\"name\":\"weights/config.json\"", "\"name\":\"/etc/passwd\"",
            "files[1].name"},
        Lie{"Top", "\"name\":\"weights/config.json\"", "\"name\":\"COMMIT\"", "files[1].name"},
        Lie{"Same", "\"name\":\"weights/config.json\"", "\"name\":\"weights/model.safetensors\"",
            "files[1].name: \"weights/model.safetensors\" is the name of an earlier file"},
        Lie{"BytesLarge", "\"bytes\":5", "\"bytes\":" + kBig, "files[1].bytes: found " + kBig},
        Lie{"BytesMany", "\"bytes\":5", "\"bytes\":9223372036854775807",
            "files[1].crc32c: found 8 digits, expected 8 for each of 8796093022208 blocks"},
        Lie{"SumShort", "\"00000007\"", "\"0000007\"", "files[1].crc32c: found 7 digits"},
        Lie{"SumLetters", "\"00000007\"", "\"0000000g\"", "files[1].crc32c: found other"},
        Lie{"SumCapitals", "\"00000007\"", "\"0000000A\"", "files[1].crc32c: found other"},
        Lie{"SumNumber", "\"00000007\"", "7", "files[1].crc32c: found 7, expected a text"}),
    [](const auto& lie) { return lie.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Tensors, LyingIndex,
    ::testing::Values(
        Lie{"Type", "\"F32\"", "\"BF16\"", "tensors[0].dtype: found \"BF16\", expected F32"},
        Lie{"Kind", "\"moment0\"", "\"gradient\"",
            "tensors[3].kind: found \"gradient\", expected parameter, moment0 or moment1"},
        Lie{"OtherKind", "\"moment0\"", "\"moment1\"",
            "tensors[3].file: found \"moments/moment0.safetensors\", expected "
            "moments/moment1*.safetensors for the kind moment1"},
        Lie{"NoTensorFile", "\"file\":\"weights/model.safetensors\"",
            "\"file\":\"weights/config.json\"",
            "tensors[0].file: found \"weights/config.json\", expected weights/*.safetensors"},
        Lie{"NoFile", "\"file\":\"weights/model.safetensors\"",
            "\"file\":\"weights/x.safetensors\"",
            "tensors[0].file: found \"weights/x.safetensors\", expected one of the 4 files"},
        Lie{"Twice", "b \\\"quoted\\\"", "a",
            "tensors[1].name: \"a\" is the name of an earlier tensor of the kind parameter"},
        Lie{"Overlap", "\"offset\":128", "\"offset\":124",
            "tensors[1].offset: found 124 of weights/model.safetensors, expected the tensor behind "
            "128 of weights/model.safetensors"},
        Lie{"Odd", "\"offset\":132", "\"offset\":134",
            "tensors[2].offset: found 134, expected a "
            "multiple of 4"},
        Lie{"Outside", "\"offset\":104}\n]", "\"offset\":120}\n]",
            "tensors[3].offset: found 120, from where shape [2, 3] reaches offset 144 of "
            "moments/moment0.safetensors, which has 140"},
        Lie{"OffsetText", "\"offset\":128", "\"offset\":\"128\"", "tensors[1].offset: found"},
        Lie{"Shape", "[2,3]", "[2,\"3\"]", "tensors[0].shape: found \"3\", expected a whole"},
        Lie{"ShapeNegative", "[2,3]", "[-2,3]", "tensors[0].shape: found -2, expected a whole"},
        Lie{"ShapeLarge", "[2,3]", "[4611686018427387904,3]",
            "tensors[0].shape: found "
            "[4611686018427387904, 3], too large"},
        Lie{"ShapeText", "[2,3]", "\"x\"", "tensors[0].shape: found \"x\", expected a list"}),
    [](const auto& lie) { return lie.param.name; });

TEST(CheckpointIndex, RefusesToWriteWhatWouldNotBeRead) {
  CheckpointIndex index = sample();
  nlohmann::ordered_json deep = 1;
  for (int i = 0; i < 150; ++i) deep = nlohmann::ordered_json::array({std::move(deep)});
  index.extra = {{"deep", deep}};
  EXPECT_THAT(error_of([&] { checkpoint_index_text(index); }), HasSubstr("is not a JSON object"));
  index.extra = {{"bytes", "\xff"}};
  EXPECT_THAT(error_of([&] { checkpoint_index_text(index); }), HasSubstr("is not UTF-8"));
  index = sample();
  index.tensors[1].offset = 100;
  EXPECT_THAT(error_of([&] { checkpoint_index_text(index); }), HasSubstr("tensors[1].offset"));
}

TEST(CheckpointCommit, IsRefusedUnlessAllOfItFits) {
  const std::string text = checkpoint_index_text(sample());
  const std::string line = commit_line(text);
  EXPECT_NO_THROW(check_commit("COMMIT", line, text));
  EXPECT_EQ(error_of([&] { check_commit("s/COMMIT", "zero checkpoint 2 abc\n", text); }),
            "s/COMMIT: found format version 2, expected 1; this program reads no other");
  const auto refusal = [&](const std::string& commit) {
    return error_of([&] { check_commit("s/COMMIT", commit, text); });
  };
  for (std::size_t i = 0; i < line.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = line;
      other[i] = static_cast<char>(other[i] ^ (1 << bit));
      ASSERT_THAT(refusal(other), StartsWith("s/COMMIT: found ")) << i;
    }
    ASSERT_THAT(refusal(line.substr(0, i)), StartsWith("s/COMMIT: found ")) << i;
  }
  EXPECT_THAT(refusal(line + "\n"), HasSubstr("the hash of index.json"));
  EXPECT_THAT(refusal(std::string(line.size(), '\0')), HasSubstr("found \"??"));
  EXPECT_THAT(error_of([&] { check_commit("s/COMMIT", line, text + " "); }),
              HasSubstr("the hash of index.json: one of the two was changed"));
}

}  // namespace
}  // namespace zero
