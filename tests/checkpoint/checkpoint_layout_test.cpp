// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/checkpoint/checkpoint_files.h"
#include "tests/errors.h"
#include "weights/hf/file_header.h"

namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names_of(const CheckpointLayout& layout) {
  std::vector<std::string> names;
  for (const LayoutFile& file : layout.files()) names.push_back(file.name);
  return names;
}

/// The files of parameters of these elements each, called "a", "b", ...
CheckpointLayout cut(const std::vector<std::int64_t>& elements, std::int64_t file_bytes) {
  std::vector<NamedShape> parameters;
  for (const std::int64_t count : elements) {
    parameters.push_back({std::string(1, static_cast<char>('a' + parameters.size())), {count}});
  }
  auto tensors = logical_tensors(parameters);
  tensors.resize(parameters.size());  // the parameters
  return lay_out_checkpoint(tensors, names::plain(), {.file_bytes = file_bytes});
}

std::vector<std::size_t> files_of_tensors(const CheckpointLayout& layout) {
  std::vector<std::size_t> files;
  for (const LayoutTensor& tensor : layout.tensors()) files.push_back(tensor.file);
  return files;
}

TEST(CheckpointLayout, HasOneFileAKindIfAllFits) {
  const auto tensors = logical_tensors({{"b", {2}}, {"a", {3}}});
  const CheckpointLayout layout =
      lay_out_checkpoint(tensors, names::plain(), {.weight_files = {{"config.json", "{}"}}});
  EXPECT_THAT(names_of(layout),
              ElementsAre("weights/model.safetensors", "weights/config.json",
                          "moments/moment0.safetensors", "moments/moment1.safetensors"));
  EXPECT_EQ(layout.tensors()[0].name, "a");
  EXPECT_EQ(layout.tensors()[0].source, 1U);
  EXPECT_EQ(layout.tensors()[3].name, "b");
  EXPECT_EQ(layout.tensors()[3].kind, StateKind::moment0);
  EXPECT_EQ(layout.tensors()[3].source, 0U);
}

TEST(CheckpointLayout, HasNoFileOfAMomentThatTheOptimizerLacks) {
  EXPECT_THAT(names_of(cut({4}, 100)), ElementsAre("weights/model.safetensors"));
}

TEST(CheckpointLayout, FillsFilesUntilTheNextTensorWouldNotFit) {
  EXPECT_THAT(files_of_tensors(cut({5, 5, 1}, 40)), ElementsAre(0, 0, 1));
  EXPECT_THAT(files_of_tensors(cut({5, 5, 1}, 44)), ElementsAre(0, 0, 0));
  EXPECT_THAT(files_of_tensors(cut({5, 50, 1, 1}, 40)), ElementsAre(0, 1, 2, 2));
  EXPECT_THAT(files_of_tensors(cut({50, 5}, 40)), ElementsAre(0, 1));
  EXPECT_THAT(files_of_tensors(cut({10, 0, 10, 0}, 40)), ElementsAre(0, 0, 1, 1));
}

TEST(CheckpointLayout, NumbersFilesAndIndexesThemAsHuggingFaceDoes) {
  const CheckpointLayout layout = cut({5, 5, 6}, 40);
  EXPECT_THAT(names_of(layout), ElementsAre("weights/model-00001-of-00002.safetensors",
                                            "weights/model-00002-of-00002.safetensors",
                                            "weights/model.safetensors.index.json"));
  EXPECT_EQ(nlohmann::json::parse(layout.files()[2].head),
            nlohmann::json::parse(R"({"metadata": {"total_size": 64}, "weight_map": {
              "a": "model-00001-of-00002.safetensors", "b": "model-00001-of-00002.safetensors",
              "c": "model-00002-of-00002.safetensors"}})"));
}

TEST(CheckpointLayout, StoresFusedTensorsAsTheirPieces) {
  const NameMap names{.family = "llama",
                      .splits = {{"qkv_proj", {{"q_proj", 4}, {"k_proj", 2}, {"v_proj", 2}}}}};
  const auto tensors = logical_tensors({{"norm", {8}}, {"l.0.qkv_proj.weight", {8, 3}}});
  const CheckpointLayout layout = lay_out_checkpoint(tensors, names, {});
  std::vector<std::tuple<std::string, std::int64_t, std::int64_t>> found;
  for (const LayoutTensor& tensor : layout.tensors()) {
    if (tensor.kind != StateKind::moment1) continue;
    found.emplace_back(tensor.name, tensor.source_begin, tensor.count());
    EXPECT_EQ(tensor.source, tensor.name == "norm" ? 0U : 1U);
  }
  EXPECT_THAT(found, ElementsAre(std::tuple("l.0.k_proj.weight", 12, 6),
                                 std::tuple("l.0.q_proj.weight", 0, 12),
                                 std::tuple("l.0.v_proj.weight", 18, 6), std::tuple("norm", 0, 8)));
}

// Headers, pieces and small files: every byte of every block once, every element once.
void expect_covered(const CheckpointLayout& layout) {
  std::vector<std::vector<int>> elements;
  for (const LayoutTensor& tensor : layout.tensors()) {
    elements.emplace_back(static_cast<std::size_t>(tensor.count()), 0);
  }
  std::int64_t bytes = 0;
  for (std::int64_t number = 0; number < layout.blocks().count(); ++number) {
    const Block block = layout.blocks().at(number);
    ASSERT_EQ(layout.blocks().number(block.file, block.begin), number);
    ASSERT_EQ(layout.blocks().first(block.file) + block.index, number);
    std::int64_t end = std::ssize(layout.head_of(block));
    layout.for_each_piece(block, [&](const BlockPiece& piece) {
      ASSERT_EQ(piece.offset, end);
      ASSERT_GT(piece.count, 0);
      end += piece.count * 4;
      const LayoutTensor& tensor = layout.tensors()[piece.tensor];
      for (std::int64_t i = 0; i < piece.count; ++i) {
        ++elements[piece.tensor].at(
            static_cast<std::size_t>(piece.source_begin - tensor.source_begin + i));
      }
    });
    ASSERT_EQ(end, block.bytes);
    bytes += block.bytes;
  }
  EXPECT_EQ(bytes, layout.bytes());
  for (const auto& counts : elements) {
    EXPECT_TRUE(std::ranges::all_of(counts, [](int count) { return count == 1; }));
  }
}

TEST(CheckpointLayout, CoversEveryByteAndElementOnce) {
  expect_covered(small_layout());
  expect_covered(large_layout());
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::int64_t> elements(1 + random() % 20);
    for (std::int64_t& count : elements) count = random() % (random() % 5 == 0 ? 600000 : 50);
    expect_covered(cut(elements, 1 + random() % 2000000));
  }
}

// A header of more than a block.
TEST(CheckpointLayout, CutsLongHeadersOverBlocks) {
  std::vector<NamedShape> parameters;
  for (int i = 0; i < 3000; ++i) {
    parameters.push_back({std::to_string(i) + std::string(600, 'x'), {1}});
  }
  const CheckpointLayout layout =
      lay_out_checkpoint(logical_tensors(parameters), names::plain(), {});
  EXPECT_GT(layout.files()[0].head.size(), std::size_t{1} << 20);
  expect_covered(layout);
  std::string text;
  for (std::int64_t i = 0; i < blocks_of(layout.files()[0].bytes); ++i) {
    text += layout.head_of(layout.blocks().at(i));
  }
  EXPECT_EQ(text, layout.files()[0].head);
}

TEST(CheckpointLayout, MakesFilesThatReadersOfTheFormatAccept) {
  const CheckpointLayout layout = large_layout();
  for (const LayoutFile& file : layout.files()) {
    if (!file.name.ends_with(".safetensors")) continue;
    const FileHeader header = parse_header(file.name, file.head.substr(8), file.bytes);
    for (const FileTensor& tensor : header.tensors) {
      EXPECT_TRUE(std::ranges::any_of(layout.tensors(), [&](const LayoutTensor& own) {
        return own.name == tensor.name && own.shape == tensor.shape &&
               own.offset == header.data_begin + tensor.begin &&
               layout.files()[own.file].name == file.name;
      })) << tensor.name;
    }
  }
}

TEST(CheckpointLayout, RefusesListsThatMakeNoFiles) {
  const auto refusal = [](const std::vector<LogicalTensor>& tensors,
                          CheckpointLayoutOptions options) {
    return error_of([&] { lay_out_checkpoint(tensors, names::plain(), options); });
  };
  const auto good = logical_tensors({{"a", {2}}});
  EXPECT_EQ(refusal(logical_tensors({{"a", {2}}, {"a", {3}}}), {}),
            "tensor \"a\" (parameter) is listed twice for one checkpoint");
  auto gradients = good;
  gradients[0].kind = StateKind::gradient;
  EXPECT_EQ(refusal(gradients, {}), "tensor \"a\": checkpoints hold no gradients");
  EXPECT_THAT(refusal(logical_tensors({{"a", {std::int64_t{1} << 61, 2}}}), {}),
              HasSubstr("tensor \"a\": shape [2305843009213693952, 2] of F32 does not fit"));
  EXPECT_THAT(refusal(good, {.file_bytes = 0}), HasSubstr("cut at 0 bytes; expected a size"));
  // A file that ends like one of tensors would make a checkpoint that no reader opens.
  for (const char* name : {"../config.json", "", "..", "a/b", "model.safetensors", ".safetensors",
                           "adapter.safetensors", "model.safetensors.index.json"}) {
    EXPECT_THAT(refusal(good, {.weight_files = {{name, ""}}}),
                HasSubstr(fmt::format("is called \"{}\"; expected a plain name", name)));
  }
}

class MatchCheckpoint : public ::testing::Test {
 protected:
  static std::string refusal(const std::vector<NamedShape>& parameters) {
    return error_of([&] {
      match_checkpoint(index(), "runs/step_1", logical_tensors(parameters), names::plain());
    });
  }
  static CheckpointIndex index() {
    const CheckpointLayout layout =
        lay_out_checkpoint(logical_tensors(kSaved), names::plain(), {.file_bytes = 30});
    return index_of(layout, 1,
                    std::vector<std::uint32_t>(static_cast<std::size_t>(layout.blocks().count())),
                    {});
  }
  static inline const std::vector<NamedShape> kSaved = {{"b", {2}}, {"a", {3}}, {"c", {4}}};
};

TEST_F(MatchCheckpoint, FindsTensorsWhereverFilesWereCut) {
  // The order of the engine's list may differ.
  const auto tensors = logical_tensors({{"c", {4}}, {"a", {3}}, {"b", {2}}});
  const CheckpointIndex saved = index();
  const CheckpointLayout layout = match_checkpoint(saved, "runs/step_1", tensors, names::plain());
  ASSERT_EQ(layout.tensors().size(), 9U);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(layout.tensors()[i].name, saved.tensors[i].name);
    EXPECT_EQ(layout.tensors()[i].offset, saved.tensors[i].offset);
    EXPECT_EQ(tensors[layout.tensors()[i].source].name, saved.tensors[i].name);
  }
  EXPECT_EQ(layout.blocks().count(), std::ssize(saved.files));
}

TEST_F(MatchCheckpoint, NamesFileTensorFoundAndExpected) {
  EXPECT_THAT(refusal({{"b", {2}}, {"a", {3}}}),
              HasSubstr("runs/step_1/weights/model-00002-of-00002.safetensors: tensor \"c\" "
                        "(parameter): found shape [4], expected no tensor of that name and kind "
                        "among the model's 6"));
  EXPECT_EQ(refusal({{"b", {2}}, {"a", {1, 3}}, {"c", {4}}}),
            "runs/step_1/weights/model-00001-of-00002.safetensors: tensor \"a\" (parameter): found "
            "shape [3], expected [1, 3]");
  EXPECT_THAT(refusal({{"b", {2}}, {"a", {3}}, {"c", {4}}, {"d", {5}}}),
              HasSubstr("runs/step_1: tensor \"d\" (parameter): found none of that name and kind "
                        "among 9, expected shape [5]"));
}

TEST(IndexOf, TakesAChecksumABlock) {
  const CheckpointLayout layout = small_layout();
  EXPECT_THAT(error_of([&] { index_of(layout, 1, {}, {}); }), HasSubstr("0 checksums"));
}

}  // namespace
}  // namespace zero::testing
