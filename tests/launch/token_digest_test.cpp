// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/token_digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "files/disk_calls.h"
#include "launch/data/prepare.h"
#include "launch/data/token_file.h"
#include "launch/train/data_check.h"
#include "tests/errors.h"
#include "tests/launch/written_tokens.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void flip_byte(const std::string& path, std::int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 1));
}

TEST(TokenFile, TokensThatAreReadAreHeldAgainstTheDigestBesideTheFile) {
  const Scratch folder;
  const std::string path = write_tokens(folder, "a.bin", counted(0, 65536));  // 8 blocks
  const TokenFile whole(path);
  ASSERT_NE(whole.digest(), nullptr);
  const std::string before = whole.digest()->text();
  flip_byte(path, 1024 + 2 * 40000);
  std::vector<std::uint32_t> tokens(10);
  whole.read(32758, tokens);  // the last ones of a block
  EXPECT_EQ(tokens[9], 32767U);
  const std::string changed = error_of([&] { whole.read(32759, tokens); });
  EXPECT_THAT(changed, AllOf(HasSubstr(path + ": tokens 32768 to 40959 are not those of " + path +
                                       ".digest"),
                             HasSubstr("zero_prepare --digest " + path)));
  const TokenStream stream({path});
  EXPECT_EQ(error_of([&] { stream.check_tokens(0, 65536, 1 << 20); }),
            "no error");  // needs no look
  EXPECT_EQ(error_of([&] { stream.check_tokens(0, 65536, 40000); }), changed);
  EXPECT_EQ(make_digests({path}), std::vector{path + ".digest"});
  const TokenFile again(path);
  EXPECT_NE(again.digest()->text(), before);
  again.read(32759, tokens);
  const TokenFile wide(write_tokens(folder, "wide.bin", counted(0, 65536), 4));
  EXPECT_NE(wide.digest()->text(), before);
  wide.read(16380, tokens);
  EXPECT_EQ(tokens[9], 16389U);
  EXPECT_THAT(error_of([&] { wide.read(65530, tokens); }),
              HasSubstr("tokens 65530 to 65540 of 65536 were asked for"));
}

TEST(TokenFile, ThatIsCutWhileItIsOpenIsNamed) {
  const Scratch folder;
  const std::string path = write_tokens(folder, "a.bin", counted(0, 65536));
  for (const auto digest : {TokenFile::Digest::checked, TokenFile::Digest::ignored}) {
    const TokenFile file(path, digest);
    std::filesystem::resize_file(path, 1024 + 2 * 40000);
    EXPECT_EQ(file.at(100), 100U);
    EXPECT_THAT(
        error_of([&] { file.at(50000); }),
        AllOf(HasSubstr(path + ": ends at offset "),
              HasSubstr("the file was cut; put the token file back as it was when the run opened "
                        "it, and start again")));
    write_tokens(folder, "a.bin", counted(0, 65536));
  }
}

TEST(TokenDigest, IsReadAsItWasWrittenOrRefused) {
  const Scratch folder;
  const std::string path = write_tokens(folder, "a.bin", counted(0, 40000));
  const std::string beside = digest_path(path);
  EXPECT_EQ(read_digest(folder.path("none.digest")), std::nullopt);
  EXPECT_EQ(digest_bytes(*read_digest(beside)), folder.read("a.bin.digest"));
  write_tokens(folder, "b.bin", counted(0, 40001));
  std::filesystem::copy(digest_path(folder.path("b.bin")), folder.path("a.bin.digest"),
                        std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(error_of([&] { TokenFile file(path); }),
              HasSubstr(beside +
                        ": is the digest of 40001 tokens of 2 bytes, and the token file has "
                        "40000 of 2; make it again with zero_prepare --digest " +
                        path));
  const std::string bytes = folder.read("b.bin.digest");
  for (const std::size_t size : {std::size_t{0}, std::size_t{31}, bytes.size() - 1}) {
    folder.write("a.bin.digest", bytes.substr(0, size));
    EXPECT_THAT(error_of([&] { TokenFile file(path); }),
                HasSubstr(beside + ": is no whole digest of a token file"));
  }
  folder.write("a.bin.digest", bytes);
  flip_byte(beside, 34);
  EXPECT_THAT(error_of([&] { TokenFile file(path); }), HasSubstr("is no whole digest"));
  TokenDigest other = *read_digest(digest_path(folder.path("b.bin")));
  for (const auto& [block, hashes] : {std::pair{4096, 20}, {32768, 3}}) {
    other.block = block;
    other.blocks.resize(static_cast<std::size_t>(hashes));
    folder.write("a.bin.digest", digest_bytes(other));
    EXPECT_THAT(error_of([&] { TokenFile file(path); }), HasSubstr("is no whole digest")) << block;
  }
  std::filesystem::remove(beside);
  std::filesystem::create_directory(beside);
  EXPECT_THAT(
      error_of([&] { TokenFile file(path); }),
      HasSubstr(beside + ": is not a regular file; give the digest the token file's permissions"));
}

// Its text is what checkpoints and ranks with a new digest of the same tokens have.
TEST(TokenDigest, OfTheFirstVersionIsReadAndHasTheSameText) {
  constexpr char kFirst[] =
      "TDigest1\x02\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0"
      "\x5c\x15\x9d\x3c\xbf\x59\x51\x14\x23\xa3\x40\xbe\x02\x09\xa5\x7f"
      "\x9a\xb6\x62\x9a\x41\xb4\xdc\x2b\x84\x48\x59\xb3\xf8\x4f\x7c\x7f";
  const std::string first(kFirst, sizeof(kFirst) - 1);
  const Scratch folder;
  const std::string path = write_tokens(folder, "a.bin", counted(0, 65536));
  EXPECT_EQ(TokenFile(path).digest()->text(), "7f7c4ff8b35948842bdcb4419a62b69a");
  EXPECT_EQ(TokenFile(path).digest()->block, 16384);
  folder.write("a.bin.digest", first);
  const TokenFile old(path);
  EXPECT_EQ(old.digest()->text(), "7f7c4ff8b35948842bdcb4419a62b69a");
  EXPECT_EQ(digest_bytes(*old.digest()), first);
  EXPECT_EQ(old.at(40000), 40000U);
  flip_byte(path, 1024 + 2 * 40000);
  EXPECT_THAT(error_of([&] { old.at(50000); }), HasSubstr("tokens 32768 to 65535 are not those"));
  for (const std::size_t at : {std::size_t{24}, std::size_t{40}, first.size() - 1}) {
    folder.write("a.bin.digest", first);
    flip_byte(digest_path(path), static_cast<std::int64_t>(at));
    EXPECT_THAT(error_of([&] { TokenFile file(path); }), HasSubstr("is no whole digest")) << at;
  }
}

TEST(TokenDigest, DoesNotDependOnThePartsInWhichTokensCome) {
  const std::vector<std::uint32_t> tokens = counted(0, 100000);
  const auto bytes = std::as_bytes(std::span(tokens));
  const auto of_parts = [&](std::size_t part) {
    DigestBuilder builder;
    for (std::size_t at = 0; at < bytes.size(); at += part) {
      builder.add(bytes.subspan(at, std::min(part, bytes.size() - at)));
    }
    return builder.finish(4).text();
  };
  const std::string expected = of_parts(bytes.size());
  for (const std::size_t part : {std::size_t{1000}, std::size_t{65536}, std::size_t{70000}}) {
    EXPECT_EQ(of_parts(part), expected);
  }
}

TEST(DataDigests, OfFilesWithoutOneAreReadInTheBackground) {
  const Scratch folder;
  const std::string a = write_tokens(folder, "a.bin", counted(0, 65536));
  const std::string b = write_tokens(folder, "b.bin", counted(0, 100));
  const std::string expected = TokenFile(a).digest()->text();
  std::filesystem::remove(digest_path(a));
  const TokenFile without(a);
  const TokenFile with(b);
  const DataDigests digests({&without, &with});
  EXPECT_EQ(digests.bytes_to_read(), 1024 + 2 * 65536);
  EXPECT_THAT(digests.known(), ElementsAre("", with.digest()->text()));
  while (!digests.complete()) digests.wait(1);
  EXPECT_THAT(digests.texts(), ElementsAre(expected, with.digest()->text()));
  const TokenFile cut(a);
  std::filesystem::resize_file(a, 5000);
  const DataDigests failed({&cut});
  while (!failed.complete()) failed.wait(1);
  EXPECT_THAT(error_of([&] { failed.texts(); }),
              HasSubstr("the file was cut; put the token file back"));
  const DataDigests none({&with});
  EXPECT_TRUE(none.complete());
}

// A watchdog would excuse a rank that hangs for as long as its data are read.
TEST(DataDigests, AreNoCallsToTheDiskThatHoldUpTheRank) {
  const Scratch folder;
  const std::string path = write_tokens(folder, "a.bin", counted(0, 65536));
  std::filesystem::remove(digest_path(path));
  const TokenFile file(path);
  const files::DiskCalls before = files::disk_calls();
  const DataDigests digests({&file});
  while (!digests.complete()) digests.wait(1);
  EXPECT_THAT(digests.texts(), ElementsAre(::testing::SizeIs(32)));
  EXPECT_EQ(files::disk_calls(), before);
}

}  // namespace
}  // namespace zero::testing
