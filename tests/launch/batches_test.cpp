// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "collectives/backends.h"
#include "launch/config/train_config.h"
#include "launch/data/prepare.h"
#include "launch/train/data_check.h"
#include "launch/train/tokenizer_files.h"
#include "tests/errors.h"
#include "tests/launch/tiny_run.h"
#include "text/byte_level.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Batches, DataThatDoNotFitAreRefused) {
  const TinyRun run;
  const auto refusal = [&](const std::vector<std::string>& overrides, int world) {
    return error_of([&] {
      Batches(make_train_config(Configuration::read(run.config(), overrides), world), world - 1);
    });
  };
  EXPECT_THAT(refusal({"train_batch_size=164"}, 1),
              HasSubstr("data.train: 2600 tokens in 2 file(s) make 162 sequences of 16, fewer than "
                        "one batch of 164"));
  EXPECT_THAT(refusal({"train_batch_size=null"}, 82), HasSubstr("fewer than one batch of 164"));
  EXPECT_EQ(refusal({"train_batch_size=162"}, 1), "no error");
  EXPECT_THAT(refusal({"data.validation=" + write_tokens(run.folder(), "v.bin", {1, 2})}, 1),
              HasSubstr("data.validation: 2 tokens are shorter than one sequence of 16"));
  EXPECT_THAT(refusal({"model.vocabulary=200"}, 1), HasSubstr("but model.vocabulary is 200"));
}

TEST(Batches, TokensOfAnotherTokenizerAreRefused) {
  const TinyRun run;
  const std::string out = run.folder().path("tokens");
  const std::string bytes = run.folder().write("tokenizer.json", byte_tokenizer_json());
  std::string text;
  for (int i = 0; i < 300; ++i) text += "a line\n";
  Console console(stdout, Console::Mode::silent);
  prepare({.files = {run.folder().write("a.txt", text)}, .out = out}, console);
  const auto refusal = [&](const std::string& override, const std::string& train) {
    return error_of([&] {
      const TrainConfig config = make_train_config(
          Configuration::read(run.config(),
                              {"data.train=" + train, "data.validation=null", override}),
          1);
      check_data_tokenizer(config, Batches(config, 0));
    });
  };
  EXPECT_EQ(refusal("data.tokenizer=bytes", out), "no error");
  EXPECT_EQ(refusal("data.tokenizer=" + bytes, out), "no error");
  EXPECT_EQ(refusal("data.tokenizer=null", out), "no error");
  EXPECT_EQ(refusal("run.init=" + run.folder().path(), out), "no error");
  nlohmann::json other = nlohmann::json::parse(byte_tokenizer_json());
  std::swap(other["model"]["vocab"]["a"], other["model"]["vocab"]["b"]);
  std::filesystem::create_directory(run.folder().path("other"));
  const std::string swapped = run.folder().write("other/tokenizer.json", other.dump());
  EXPECT_THAT(refusal("data.tokenizer=" + swapped, out),
              AllOf(HasSubstr("data.train: " + out +
                              "/train_000000.bin has tokens of another "
                              "tokenizer (of 256 ids, hash "),
                    HasSubstr("than data.tokenizer " + swapped)));
  // What the folder of the first weights has is saved, unless data.tokenizer is given.
  EXPECT_THAT(refusal("run.init=" + run.folder().path("other"), out),
              HasSubstr("than run.init " + run.folder().path("other")));
  EXPECT_THAT(refusal("data.tokenizer=none.json", out),
              AllOf(HasSubstr("data.tokenizer: "), HasSubstr("none.json")));
  const std::string more = run.folder().path("more");
  prepare({.files = {run.folder().path("a.txt")}, .out = more, .tokenizer = swapped}, console);
  const std::string both = nlohmann::json{out, more}.dump();
  EXPECT_THAT(refusal("data.tokenizer=bytes", both),
              HasSubstr("data.train: " + more + "/train_000000.bin has tokens of another"));
  // A model's tokenizer that is not computed is passed on, with a line.
  other["model"]["type"] = "Unigram";
  std::filesystem::create_directory(run.folder().path("unigram"));
  run.folder().write("unigram/tokenizer.json", other.dump());
  const TrainConfig unigram = make_train_config(
      Configuration::read(run.config(), {"data.train=" + out, "data.validation=null",
                                         "run.init=" + run.folder().path("unigram")}),
      1);
  EXPECT_THAT(check_data_tokenizer(unigram, Batches(unigram, 0)),
              AllOf(HasSubstr("run.init: its tokenizer is not compared with the data's tokenizer, "
                              "because it cannot be computed here: "),
                    HasSubstr("model.type: found \"Unigram\", expected \"BPE\"")));
  make_digests({out + "/train_000000.bin"});  // names no tokenizer
  EXPECT_EQ(refusal("data.tokenizer=" + swapped, out), "no error");
}

TEST(Batches, FilesAndTokensOfTheDataAreSaid) {
  const TinyRun run;
  const auto lines = [&](const std::vector<std::string>& overrides) {
    return Batches(make_train_config(Configuration::read(run.config(), overrides), 1), 0).lines();
  };
  EXPECT_THAT(lines({"data.validation=" + run.folder().path()}),
              ::testing::ElementsAre("data.train: " + run.folder().path("validation.bin") +
                                         " is left out: a file of data.validation",
                                     "data.train: 2 files, 2600 tokens",
                                     "data.validation: 1 file, 400 tokens"));
  write_tokens(run.folder(), "train_000002.bin", std::vector<std::uint32_t>(9'450'000, 1));
  EXPECT_THAT(lines({"data.validation=null"}),
              ::testing::Contains("data.train: 3 files, 9.5 M tokens"));
}

TEST(Batches, FilesWithTheSameTokensAreSaid) {
  const TinyRun run;
  const std::vector<std::uint32_t> tokens(400, 7);
  const std::string a = write_tokens(run.folder(), "a.bin", tokens);
  const std::string b = write_tokens(run.folder(), "b.bin", tokens);
  const std::string c = write_tokens(run.folder(), "c.bin", tokens);
  const std::string train = "data.train=" + nlohmann::json{a, b}.dump();
  const auto config =
      make_train_config(Configuration::read(run.config(), {train, "data.validation=" + c}), 1);
  EXPECT_THAT(Batches(config, 0).lines(),
              ::testing::ElementsAre("data.train: 2 files, 800 tokens",
                                     "data.validation: 1 file, 400 tokens",
                                     "data.train: " + b + " has the same tokens as " + a +
                                         " of data.train: they are counted twice",
                                     "data.validation: " + c + " has the same tokens as " + a +
                                         " of data.train: a loss on them says nothing"));
}

TEST(Batches, OtherDataHaveAnotherFingerprint) {
  const TinyRun run;
  const TinyRun same;
  const auto of = [](const TinyRun& from, const char* override) {
    auto all = Batches(make_train_config(Configuration::read(from.config(), {override}), 1), 0)
                   .fingerprint();
    for (auto& [key, text] : all) text = text.substr(text.find(" ("));  // without the path
    return all;
  };
  const auto expected = of(run, "run.steps=1");
  EXPECT_EQ(expected.size(), 3U);
  EXPECT_THAT(expected.at("data.train[1]"), HasSubstr("(1100 tokens, fingerprint "));
  EXPECT_EQ(of(same, "run.steps=1"), expected);
  write_tokens(same.folder(), "train_000001.bin", std::vector<std::uint32_t>(1100, 3));
  EXPECT_NE(of(same, "run.steps=1"), expected);
}

TEST(Batches, BytesThatAFingerprintOverlooksHaveAnotherDigest) {
  const TinyRun run;
  std::vector<std::uint32_t> tokens(100000, 5);
  const auto of = [&] {
    write_tokens(run.folder(), "train_000000.bin", tokens);
    return Batches(make_train_config(Configuration::read(run.config(), {}), 1), 0);
  };
  const Batches before = of();
  tokens[20000] = 6;
  const Batches after = of();
  EXPECT_EQ(before.train_fingerprints(), after.train_fingerprints());
  EXPECT_NE(before.fingerprint(), after.fingerprint());
}

TEST(DataCheck, RanksWithOtherBytesAreNamedWithTheirFile) {
  const TinyRun run;
  const TrainConfig config = make_train_config(Configuration::read(run.config(), {}), 2);
  const std::string path = run.folder().path("train_000000.bin");
  std::vector<std::uint32_t> tokens(100000, 5);
  std::vector<Batches> of_rank;
  for (const std::uint32_t token : {5U, 6U}) {
    tokens[20000] = token;
    std::filesystem::remove(path);  // the first rank goes on with the file that it has opened
    write_tokens(run.folder(), "train_000000.bin", tokens);
    std::filesystem::remove(digest_path(path));
    of_rank.emplace_back(config, 0);
  }
  const auto check = [&](bool same) {
    return error_of([&] {
      local::run(2, [&](Communicator& ranks) {
        const auto device = cpu::open();
        Console console(stdout, Console::Mode::silent);
        const auto rank = static_cast<std::size_t>(same ? 0 : ranks.rank());
        DataCheck data(of_rank[rank], ranks, *device, console);
        data.after_step(0, DataCheck::Step::middle);  // asks nothing
        EXPECT_EQ(data.agreed().at(0), "");
        data.after_step(0, DataCheck::Step::last);
        EXPECT_EQ(data.agreed().at(0).size(), 32U);
      });
    });
  };
  EXPECT_THAT(check(false),
              AllOf(HasSubstr("rank 1 has \"data.train[0]: " + path + " (digest "),
                    HasSubstr("rank 0 has \"data.train[0]: " + path + " (digest "),
                    HasSubstr("The ranks have read different tokens: copy the file whole")));
  EXPECT_EQ(check(true), "no error");
}

TEST(DataCheck, OneRankReadsAFileThatAllHaveOpened) {
  const TinyRun run;
  std::filesystem::remove(run.folder().path("train_000000.bin.digest"));
  const TrainConfig config = make_train_config(Configuration::read(run.config(), {}), 3);
  std::array<std::string, 3> agreed;
  local::run(3, [&](Communicator& ranks) {
    const Batches batches(config, ranks.rank());
    const auto device = cpu::open();
    Console console(stdout, Console::Mode::silent);
    DataCheck data(batches, ranks, *device, console);
    EXPECT_EQ(data.bytes_to_read() > 0, ranks.rank() == 0);
    data.after_step(0, DataCheck::Step::last);
    agreed[static_cast<std::size_t>(ranks.rank())] = data.agreed().at(0);
  });
  EXPECT_EQ(agreed[0].size(), 32U);
  EXPECT_EQ(agreed[1], agreed[0]);
  EXPECT_EQ(agreed[2], agreed[0]);
}

TEST(DataCheck, ComparesOnceTheFirstRankHasItsDigests) {
  const TinyRun run;
  std::filesystem::remove(run.folder().path("train_000000.bin.digest"));
  const Batches batches(make_train_config(Configuration::read(run.config(), {}), 1), 0);
  local::run(1, [&](Communicator& ranks) {
    const auto device = cpu::open();
    Console console(stdout, Console::Mode::silent);
    DataCheck data(batches, ranks, *device, console);
    std::int64_t vote = 0;
    while (vote == 0) vote = data.vote();
    EXPECT_EQ(data.vote(), 0);  // asked a moment ago
    data.after_step(vote, DataCheck::Step::middle);
    EXPECT_EQ(data.agreed().at(0).size(), 32U);
    EXPECT_EQ(data.vote(), 0);
  });
}

}  // namespace
}  // namespace zero::testing
