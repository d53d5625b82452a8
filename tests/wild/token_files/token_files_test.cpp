// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "launch/config/train_config.h"
#include "launch/data/batches.h"
#include "tests/launch/tiny_run.h"

namespace zero::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

/// A file as llm.c's data scripts write it.
template <typename Token>
std::string llm_c_file(std::int32_t magic, std::int32_t version, const std::vector<Token>& tokens) {
  std::array<std::int32_t, 256> header{magic, version, static_cast<std::int32_t>(tokens.size())};
  std::string bytes(sizeof(header) + tokens.size() * sizeof(Token), '\0');
  std::memcpy(bytes.data(), header.data(), sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), tokens.data(), tokens.size() * sizeof(Token));
  return bytes;
}

std::string gpt2_file(std::uint16_t id) {
  return llm_c_file<std::uint16_t>(20240520, 1, std::vector<std::uint16_t>(1000, id));
}

Batches opened(const std::string& config, const std::vector<std::string>& overrides) {
  return Batches(make_train_config(Configuration::read(config, overrides), 1), 0);
}

/// The first token of each validation file.
std::vector<std::uint32_t> validation_tokens(const Batches& batches) {
  std::vector<std::uint32_t> tokens;
  for (const DataFile& each : batches.files()) {
    if (each.key == "data.validation") tokens.push_back(each.file.at(0));
  }
  return tokens;
}

TEST(LlmCTokenFiles, AFolderOfTheirLayoutIsTrainingAndValidationData) {
  const TinyRun run;
  const Scratch data;
  data.write("fineweb_train_000001.bin", gpt2_file(1));
  data.write("fineweb_train_000002.bin", gpt2_file(2));
  const std::string validation = data.write("fineweb_val_000000.bin", gpt2_file(3));
  const std::vector<std::string> named{"data.train=" + data.path(),
                                       "data.validation=" + validation};
  const std::vector<std::string> folders{named[0], "data.validation=" + data.path()};
  for (const auto& overrides : {named, folders}) {
    const Batches batches = opened(run.config(), overrides);
    EXPECT_THAT(
        batches.lines(),
        ElementsAre("data.train: " + validation + " is left out: a file of data.validation",
                    "data.train: 2 files, 2000 tokens", "data.validation: 1 file, 1000 tokens"));
    EXPECT_THAT(validation_tokens(batches), ElementsAre(3));
  }
  EXPECT_THAT(opened(run.config(), {named[0], "data.validation=null"}).lines(),
              Contains("data.train: " + validation +
                       " is left out: a validation file by its name; to train on it, name the file "
                       "itself"));
}

TEST(LlmCTokenFiles, TinyShakespeareIsFoundByItsNames) {
  const TinyRun run;
  const Scratch data;
  data.write("tiny_shakespeare_train.bin", gpt2_file(1));
  data.write("tiny_shakespeare_val.bin", gpt2_file(3));
  const Batches batches =
      opened(run.config(), {"data.train=" + data.path(), "data.validation=" + data.path()});
  EXPECT_THAT(batches.lines(), Contains("data.train: 1 file, 1000 tokens"));
  EXPECT_THAT(validation_tokens(batches), ElementsAre(3));
}

TEST(LlmCTokenFiles, ThoseOfLlama3Have32BitTokens) {
  const Scratch data;
  const TokenFile file(
      data.write("val.bin", llm_c_file<std::uint32_t>(20240801, 7, {128000, 9906, 11})));
  EXPECT_EQ(file.count(), 3);
  EXPECT_EQ(file.token_bytes(), 4);
  EXPECT_EQ(file.at(0), 128000U);
  EXPECT_EQ(file.at(2), 11U);
}

}  // namespace
}  // namespace zero::testing
