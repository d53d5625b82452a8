// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/data_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/launch/temporary_folder.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

TEST(DataFiles, MayBeFilesListsFoldersAndPatterns) {
  const TemporaryFolder folder;
  for (const char* name : {"train_000001.bin", "train_000000.bin", "validation.bin", "notes.txt"})
    folder.write(name, "");
  const std::string a = folder.file("train_000000.bin");
  const std::string b = folder.file("train_000001.bin");
  EXPECT_THAT(expand_data_files({folder.path()}, "data.train"), ElementsAre(a, b));
  EXPECT_THAT(expand_data_files({b, a}, "data.train"), ElementsAre(a, b));
  EXPECT_THAT(expand_data_files({folder.file("train_*.bin")}, "data.train"), ElementsAre(a, b));
  for (const char* name : {"train_000000.bin.digest", "train_000000.bin.tmp"})
    folder.write(name, "");
  EXPECT_THAT(expand_data_files({folder.file("train_*")}, "data.train"), ElementsAre(a, b));
  EXPECT_THAT(expand_data_files({folder.file("v")}, "data.train"), ElementsAre(folder.file("v")));
  EXPECT_THAT(error_of([&] { expand_data_files({folder.file("x*.bin")}, "data.train"); }),
              HasSubstr("data.train: no file matches"));
  EXPECT_THAT(error_of([&] {
                expand_data_files({a, a}, "data.train");
              }),
              HasSubstr("is given twice"));
  const TemporaryFolder empty;
  EXPECT_THAT(error_of([&] { expand_data_files({empty.path()}, "data.validation"); }),
              HasSubstr("data.validation: the folder"));
}

// As another user, where root would be allowed to.
TEST(DataFiles, AFolderThatMayNotBeReadIsNamed) {
  constexpr uid_t kNobody = 65534;
  const TemporaryFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0111), 0);
  const ::pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) ::_exit(2);
    const std::string message =
        error_of([&] { expand_data_files({folder.path()}, "data.validation"); });
    ::_exit(message == "data.validation: the folder " + folder.path() +
                           " cannot be read: Permission denied; allow reading it, or name its "
                           "files"
                ? 0
                : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
}

TEST(DataFiles, AFolderForValidationMeansItsValidationFiles) {
  const TemporaryFolder folder;
  for (const char* name : {"train_000000.bin", "train_000001.bin", "validation.bin", "a.bin"})
    folder.write(name, "");
  EXPECT_THAT(expand_data_files({folder.path()}, "data.validation"),
              ElementsAre(folder.file("validation.bin")));
  const TemporaryFolder neutral;
  neutral.write("0.bin", "");
  neutral.write("medieval_1.bin", "");
  EXPECT_EQ(expand_data_files({neutral.path()}, "data.validation").size(), 2U);
  EXPECT_EQ(expand_data_files({neutral.path()}, "data.train").size(), 2U);
  const TemporaryFolder train;
  train.write("train_000000.bin", "");
  EXPECT_THAT(
      error_of([&] { expand_data_files({train.path()}, "data.validation"); }),
      AllOf(HasSubstr("data.validation: the folder " + train.path() + " holds no validation files"),
            HasSubstr("as train_000000.bin has the word train; name the files or a pattern")));
  const TemporaryFolder valid;
  valid.write("tiny_valid.bin", "");
  EXPECT_THAT(error_of([&] { expand_data_files({valid.path()}, "data.train"); }),
              HasSubstr("holds only validation files by their names (tiny_valid.bin)"));
}

TEST(DataFiles, AFileWithoutTheWordOfTheOthersIsLeftOutWithALine) {
  const TemporaryFolder folder;
  for (const char* name : {"corpus.bin", "train_a.bin"}) folder.write(name, "");
  const DataFiles files = find_data_files({folder.path()}, {});
  EXPECT_THAT(files.train, ElementsAre(folder.file("train_a.bin")));
  EXPECT_THAT(files.lines, ElementsAre("data.train: " + folder.file("corpus.bin") +
                                       " is left out: its name lacks the word train, which others "
                                       "have"));
}

TEST(DataFiles, AFileOfTheValidationIsNeverTrainedOn) {
  const TemporaryFolder folder;
  const std::string a = folder.write("a.bin", "");
  const std::string b = folder.write("b.bin", "");
  const std::string link = folder.file("link.bin");
  std::filesystem::create_symlink(b, link);
  const auto left_out = "data.train: " + b + " is left out: a file of data.validation";
  const DataFiles of_folder = find_data_files({folder.path()}, {b});
  EXPECT_THAT(of_folder.train, ElementsAre(a));
  EXPECT_THAT(of_folder.validation, ElementsAre(b));
  EXPECT_THAT(of_folder.lines, ::testing::Contains(left_out));
  const DataFiles of_pattern = find_data_files({folder.file("?.bin")}, {link});
  EXPECT_THAT(of_pattern.train, ElementsAre(a));
  EXPECT_THAT(of_pattern.lines, ElementsAre(left_out));
  EXPECT_THAT(error_of([&] {
                find_data_files({a, b}, {folder.file("b*")});
              }),
              HasSubstr("data.train names " + b + ", which is a file of data.validation too"));
  EXPECT_THAT(error_of([&] { find_data_files({folder.path()}, {folder.path()}); }),
              HasSubstr("data.train: all of its 3 file(s) are files of data.validation"));
}

}  // namespace
}  // namespace zero
