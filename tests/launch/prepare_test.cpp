// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "launch/data/data_files.h"
#include "launch/data/prepared_set.h"
#include "launch/data/token_digest.h"
#include "launch/data/token_file.h"
#include "launch/process/quantity.h"
#include "launch/train/run_lock.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/errors.h"
#include "tests/launch/written_tokens.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

PrepareReport run(const PrepareOptions& options) {
  Console console(stdout, Console::Mode::silent);
  return prepare(options, console);
}

std::string text_of(const std::vector<std::string>& files) {
  std::string text;
  for (const std::string& path : files) {
    const TokenFile file(path);
    for (std::int64_t i = 0; i < file.count(); ++i) text += static_cast<char>(file.at(i));
  }
  return text;
}

TEST(Prepare, BytesGiveBackTheText) {
  const Scratch folder;
  std::string first;
  for (int i = 0; i < 700; ++i) first += "line " + std::to_string(i) + "\n";
  const std::string second = "no line end \xff\x01";
  const std::string out = folder.path("tokens");
  const auto report = run({.files = {folder.write("a.txt", first), folder.write("b.txt", second)},
                           .out = out,
                           .validation = 0.1,
                           .shard_tokens = 1000});
  const std::string all = first + second;
  EXPECT_EQ(report.text_bytes, static_cast<std::int64_t>(all.size()));
  EXPECT_EQ(report.vocabulary, 256);
  EXPECT_EQ(report.validation_tokens,
            static_cast<std::int64_t>(static_cast<double>(all.size()) * 0.1));
  EXPECT_EQ(text_of(report.train_files) + text_of({report.validation_file}), all);
  EXPECT_EQ(report.train_files.size(), 6U);
  EXPECT_EQ(TokenFile(report.train_files[0]).count(), 1000);
  EXPECT_EQ(expand_data_files({out}, "data.train"), report.train_files);
}

TEST(Prepare, ReplacesTheShardsOfAnEarlierRun) {
  const Scratch folder;
  const std::string text = folder.write("a.txt", std::string(100, 'x'));
  run({.files = {text}, .out = folder.path("out"), .validation = 0, .shard_tokens = 10});
  const auto report = run({.files = {text}, .out = folder.path("out"), .validation = 0});
  EXPECT_EQ(report.validation_file, "");
  EXPECT_EQ(expand_data_files({folder.path("out")}, "data.train").size(), 1U);
}

TEST(Prepare, LeavesFilesThatItHasNotWritten) {
  const Scratch folder;
  const std::string text = folder.write("a.txt", std::string(100, 'x'));
  for (const char* name : {"train_mine.bin", "train_.bin", "train_1a.bin.digest"})
    folder.write(name, "mine");
  run({.files = {text}, .out = folder.path(), .validation = 0});
  for (const char* name : {"train_mine.bin", "train_.bin", "train_1a.bin.digest"})
    EXPECT_EQ("mine", folder.read(name));
}

TEST(Prepare, WritesDigestsBesideTheFiles) {
  const Scratch folder;
  const auto report = run({.files = {folder.write("a.txt", std::string(100, 'x'))},
                           .out = folder.path("out"),
                           .validation = 0.1,
                           .shard_tokens = 50});
  std::vector<std::string> all = report.train_files;
  all.push_back(report.validation_file);
  ASSERT_EQ(all.size(), 3U);
  for (const std::string& path : all) {
    const std::string digest = TokenFile(path).digest()->text();
    make_digests({path});
    EXPECT_EQ(TokenFile(path).digest()->text(), digest);
  }
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path("out")))
    ++entries;
  EXPECT_EQ(entries, 2 * all.size());
}

TEST(Prepare, TwoAtATimeAreRefusedInOneFolder) {
  const Scratch folder;
  std::filesystem::create_directory(folder.path("out"));
  const PreparedSet first(files::disk(), folder.path("out"));
  const std::string text = folder.write("a.txt", "text");
  EXPECT_THAT(
      error_of([&] { run({.files = {text}, .out = folder.path("out")}); }),
      ::testing::AllOf(HasSubstr("--out: " + folder.path("out") + " is another run's: process"),
                       HasSubstr("wait for its end, or give this one another --out")));
}

// A process that begins to train while another one finishes what a killed zero_prepare has left.
TEST(Prepare, OneOfManyThatSettleAFolderDoesIt) {
  const Scratch folder;
  const std::string out = folder.path("out");
  std::filesystem::create_directory(out);
  for (int round = 0; round < 20; ++round) {
    std::filesystem::create_directory(out + "/.zero_prepare_done");
    folder.write("out/train_000007.bin", "old");
    folder.write("out/.zero_prepare_done/train_000000.bin", "new");
    folder.write("out/.zero_prepare_done/validation.bin", "new");
    folder.write("out/.zero_prepare_done/SET", "train_000000.bin\nvalidation.bin\n");
    std::array<std::string, 4> errors;
    std::vector<std::thread> starts;
    for (std::string& error : errors) {
      starts.emplace_back([&] {
        error = error_of([&] { PreparedSet::finish_interrupted(files::disk(), out); });
        if (!std::filesystem::exists(out + "/validation.bin")) error += "not settled";
      });
    }
    for (std::thread& start : starts) start.join();
    for (const std::string& error : errors) EXPECT_EQ(error, "no error");
    EXPECT_EQ(folder.read("out/train_000000.bin"), "new");
    EXPECT_FALSE(std::filesystem::exists(out + "/train_000007.bin"));
    EXPECT_FALSE(std::filesystem::exists(out + "/.zero_prepare.lock"));
  }
}

// Its lock may be another's still when the folder is settled.
TEST(Prepare, ASettlementThatAnotherFinishedMeanwhileIsDone) {
  const Scratch folder;
  const std::string out = folder.path("out");
  const std::string decided = out + "/.zero_prepare_done";
  std::filesystem::create_directories(decided);
  const RunLock other({.key = "--out", .path = out, .file = out + "/.zero_prepare.lock"});
  bool finishes = false;
  int looks = 0;
  HookedDisk disk([&](const std::string& call, const std::string& path) {
    if (call != "kind_of" || path != decided) return;
    if (++looks == 2 && finishes) std::filesystem::remove(decided);
  });
  EXPECT_THAT(
      error_of([&] { PreparedSet::finish_interrupted(disk, out, std::chrono::milliseconds(0)); }),
      HasSubstr("data.train: " + out + " is another run's: process"));
  finishes = true;
  looks = 0;
  EXPECT_EQ(
      error_of([&] { PreparedSet::finish_interrupted(disk, out, std::chrono::milliseconds(0)); }),
      "no error");
  EXPECT_EQ(looks, 2);
}

TEST(Prepare, DigestsPassOverDigests) {
  const Scratch folder;
  const std::string file = write_tokens(folder, "train_1.bin", {1, 2, 3});
  EXPECT_THAT(make_digests({file, file + ".digest", file + ".tmp"}),
              ::testing::ElementsAre(file + ".digest"));
  EXPECT_THAT(error_of([&] { make_digests({file + ".digest"}); }),
              HasSubstr("train_1.bin.digest and the others are no token files by their names"));
}

std::map<std::string, std::string> content_of(const std::string& out) {
  std::map<std::string, std::string> all;
  for (const char* key : {"data.train", "data.validation"}) {
    for (const std::string& path : expand_data_files({out}, key)) {
      all[path] = text_of({path});
    }
  }
  return all;
}

TEST(Prepare, KilledAnywhereItLeavesTheOldSetOrTheNewOne) {
  const Scratch folder;
  const std::string old_text = folder.write("old.txt", std::string(100, 'o'));
  const std::string new_text = folder.write("new.txt", std::string(40, 'n'));
  const std::string out = folder.path("out");
  const PrepareOptions before{
      .files = {old_text}, .out = out, .validation = 0.1, .shard_tokens = 20};
  const PrepareOptions after{
      .files = {new_text}, .out = out, .validation = 0.1, .shard_tokens = 20};
  run(before);
  const auto old_set = content_of(out);
  ASSERT_EQ(old_set.size(), 6U);
  run(after);
  const auto new_set = content_of(out);
  ASSERT_EQ(new_set.size(), 3U);
  int old_ones = 0;
  int new_ones = 0;
  bool killed = true;
  for (int call = 0; killed; ++call) {
    run(before);
    int calls = 0;
    // From this call on nothing more happens, as of a process that is dead.
    HookedDisk disk([&](const std::string& name, const std::string&) {
      if (name != "list" && name != "kind_of" && ++calls > call) fail("killed");
    });
    Console console(stdout, Console::Mode::silent);
    killed = error_of([&] { prepare(after, console, disk); }) != "no error";
    const auto found = content_of(out);
    old_ones += found == old_set ? 1 : 0;
    new_ones += found == new_set ? 1 : 0;
    EXPECT_TRUE(found == old_set || found == new_set) << "killed at call " << call;
    run(after);
    EXPECT_EQ(content_of(out), new_set);
  }
  EXPECT_GT(old_ones, 2);
  EXPECT_GT(new_ones, 10);
}

TEST(Prepare, ASetThatCannotBeFinishedSaysWhatToDo) {
  const Scratch folder;
  std::filesystem::create_directory(folder.path(".zero_prepare_done"));
  folder.write(".zero_prepare_done/SET", "../a.bin\n");
  EXPECT_THAT(error_of([&] { expand_data_files({folder.path()}, "data.train"); }),
              ::testing::AllOf(HasSubstr("a zero_prepare was interrupted here"),
                               HasSubstr("names ../a.bin, which zero_prepare does not write")));
}

TEST(Prepare, MistakesAreNamedAndLeaveNothing) {
  const Scratch folder;
  const std::string text = folder.write("a.txt", "some text\n");
  const std::string out = folder.path("out");
  EXPECT_THAT(error_of([&] { run({.files = {folder.path("none.txt")}, .out = out}); }),
              HasSubstr("none.txt: cannot read the text"));
  EXPECT_THAT(error_of([&] { run({.files = {}, .out = out}); }), HasSubstr("no text is given"));
  EXPECT_THAT(error_of([&] { run({.files = {text}, .out = text}); }),
              HasSubstr("cannot make the folder"));
  EXPECT_THAT(error_of([&] { run({.files = {text}, .out = text + "/x"}); }),
              HasSubstr("cannot make the folder"));
  EXPECT_THAT(error_of([&] { run({.files = {text}, .out = out, .validation = 1.0}); }),
              HasSubstr("--validation is 1"));
  EXPECT_THAT(error_of([&] { run({.files = {text}, .out = out, .shard_tokens = 0}); }),
              HasSubstr("--shard-tokens is 0"));
  EXPECT_THAT(error_of([&] { run({.files = {folder.write("e.txt", "")}, .out = out}); }),
              HasSubstr("the texts are empty"));
  EXPECT_THAT(error_of([&] { run({.files = {text}, .out = out, .tokenizer = text}); }),
              HasSubstr("is not a SentencePiece model"));
  EXPECT_THAT(error_of([&] {
                run({.files = {folder.write("one.txt", "x")}, .out = out, .validation = 0.999999});
              }),
              "no error");
  EXPECT_TRUE(std::filesystem::exists(out + "/train_000000.bin"));
}

TEST(Prepare, CutsNoCharacter) {
  const Scratch folder;
  std::string text;
  for (int i = 0; i < 101; ++i) text += "\u4e16";
  const auto report =
      run({.files = {folder.write("a.txt", text)}, .out = folder.path("out"), .validation = 0.105});
  EXPECT_EQ(report.validation_tokens, 33);  // 0.105 of 303 bytes is 31
  EXPECT_EQ(text_of(report.train_files) + text_of({report.validation_file}), text);
}

TEST(Prepare, TakesATokenizerJson) {
  const Scratch folder;
  const auto report = run({.files = {folder.write("a.txt", "some text")},
                           .out = folder.path("out"),
                           .tokenizer = folder.write("tokenizer.json", byte_tokenizer_json()),
                           .validation = 0});
  EXPECT_EQ(report.vocabulary, 256);
  EXPECT_EQ(text_of(report.train_files), "some text");
}

TEST(Prepare, DigestsNameTheTokenizer) {
  const Scratch folder;
  const std::string json = folder.write("tokenizer.json", byte_tokenizer_json());
  const auto report = run({.files = {folder.write("a.txt", "some text")},
                           .out = folder.path("out"),
                           .tokenizer = json,
                           .validation = 0});
  const std::string& path = report.train_files.front();
  const TokenDigest named = *TokenFile(path).digest();
  ASSERT_TRUE(named.tokenizer);
  EXPECT_EQ(named.tokenizer->vocabulary, 256);
  // Another form of the same tokenizer.
  EXPECT_EQ(*named.tokenizer, mark_of(*make_tokenizer("bytes")));
  EXPECT_EQ(digest_bytes(named), folder.read("out/train_000000.bin.digest"));
  make_digests({path});
  const TokenDigest unnamed = *TokenFile(path).digest();
  EXPECT_FALSE(unnamed.tokenizer);
  EXPECT_EQ(unnamed.text(), named.text()) << "ranks and checkpoints compare tokens alone";
}

TEST(Tokenizer, BytesGoBothWays) {
  const auto bytes = make_tokenizer("bytes");
  EXPECT_EQ(bytes->decode(bytes->encode("a\xff")), "a\xff");
  EXPECT_EQ(bytes->end_of_document(), -1);
}

TEST(Console, SizesAndTimesReadWell) {
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(duration_text(41.2), "42 s");
  EXPECT_EQ(duration_text(187), "3 min 07 s");
  EXPECT_EQ(duration_text(7500), "2 h 05 min");
  EXPECT_EQ(duration_text(86'400 * 3 + 4 * 3600), "3 d 04 h");
  EXPECT_EQ(count_text(12345), "12.3k");
}

}  // namespace
}  // namespace zero::testing
