// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/data_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DataFiles, MayBeFilesListsFoldersAndPatterns) {
  const Scratch folder;
  for (const char* name : {"train_000001.bin", "train_000000.bin", "validation.bin", "notes.txt"})
    folder.write(name, "");
  const std::string a = folder.path("train_000000.bin");
  const std::string b = folder.path("train_000001.bin");
  EXPECT_THAT(expand_data_files({folder.path()}, "data.train"), ElementsAre(a, b));
  EXPECT_THAT(expand_data_files({b, a}, "data.train"), ElementsAre(a, b));
  EXPECT_THAT(expand_data_files({folder.path("train_*.bin")}, "data.train"), ElementsAre(a, b));
  for (const char* name : {"train_000000.bin.digest", "train_000000.bin.tmp"})
    folder.write(name, "");
  EXPECT_THAT(expand_data_files({folder.path("train_*")}, "data.train"), ElementsAre(a, b));
  EXPECT_THAT(expand_data_files({folder.path("v")}, "data.train"), ElementsAre(folder.path("v")));
  EXPECT_THAT(error_of([&] { expand_data_files({folder.path("x*.bin")}, "data.train"); }),
              HasSubstr("data.train: no file matches"));
  EXPECT_THAT(error_of([&] {
                expand_data_files({a, a}, "data.train");
              }),
              HasSubstr("is given twice"));
  const Scratch empty;
  EXPECT_THAT(error_of([&] { expand_data_files({empty.path()}, "data.validation"); }),
              HasSubstr("data.validation: the folder"));
}

// As another user, where root would be allowed to.
TEST(DataFiles, AFolderThatMayNotBeReadIsNamed) {
  constexpr uid_t kNobody = 65534;
  const Scratch folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0111), 0);
  const auto read_and_end = [&] {
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) ::_exit(2);
    const std::string message =
        error_of([&] { expand_data_files({folder.path()}, "data.validation"); });
    ::_exit(message == "data.validation: the folder " + folder.path() +
                           " cannot be read: Permission denied; allow reading it, or name its "
                           "files"
                ? 0
                : 1);
  };
  EXPECT_EXIT(read_and_end(), ::testing::ExitedWithCode(0), "");
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
}

TEST(DataFiles, AFolderForValidationMeansItsValidationFiles) {
  const Scratch folder;
  for (const char* name : {"train_000000.bin", "train_000001.bin", "validation.bin", "a.bin"})
    folder.write(name, "");
  EXPECT_THAT(expand_data_files({folder.path()}, "data.validation"),
              ElementsAre(folder.path("validation.bin")));
  const Scratch neutral;
  neutral.write("0.bin", "");
  neutral.write("medieval_1.bin", "");
  EXPECT_EQ(expand_data_files({neutral.path()}, "data.validation").size(), 2U);
  EXPECT_EQ(expand_data_files({neutral.path()}, "data.train").size(), 2U);
  const Scratch train;
  train.write("train_000000.bin", "");
  EXPECT_THAT(
      error_of([&] { expand_data_files({train.path()}, "data.validation"); }),
      AllOf(HasSubstr("data.validation: the folder " + train.path() + " holds no validation files"),
            HasSubstr("as train_000000.bin has the word train; name the files or a pattern")));
  const Scratch valid;
  valid.write("tiny_valid.bin", "");
  EXPECT_THAT(error_of([&] { expand_data_files({valid.path()}, "data.train"); }),
              HasSubstr("holds only validation files by their names (tiny_valid.bin)"));
}

TEST(DataFiles, AFileWithoutTheWordOfTheOthersIsLeftOutWithALine) {
  const Scratch folder;
  for (const char* name : {"corpus.bin", "train_a.bin"}) folder.write(name, "");
  const DataFiles files = find_data_files({folder.path()}, {});
  EXPECT_THAT(files.train, ElementsAre(folder.path("train_a.bin")));
  EXPECT_THAT(files.lines, ElementsAre("data.train: " + folder.path("corpus.bin") +
                                       " is left out: its name lacks the word train, which others "
                                       "have"));
}

TEST(DataFiles, ADigestWithoutItsFileIsAMissingFile) {
  const Scratch folder;
  for (const char* name : {"train_0.bin", "train_0.bin.digest", "train_1.bin.digest", "val.bin"})
    folder.write(name, "");
  const std::string refusal = "data.train: " + folder.path("train_1.bin") +
                              " is missing, and its digest " + folder.path("train_1.bin.digest") +
                              " lies there: bring the file back";
  for (const std::string& name :
       {folder.path(), folder.path("train_*.bin"), folder.path("train_*")}) {
    EXPECT_THAT(error_of([&] { expand_data_files({name}, "data.train"); }), HasSubstr(refusal));
  }
  EXPECT_THAT(expand_data_files({folder.path()}, "data.validation"),
              ElementsAre(folder.path("val.bin")));
  EXPECT_THAT(expand_data_files({folder.path("train_0*")}, "data.train"),
              ElementsAre(folder.path("train_0.bin")));
  folder.write("train_1.bin", "");
  EXPECT_EQ(expand_data_files({folder.path()}, "data.train").size(), 2U);
}

TEST(DataFiles, AFileOfTheValidationIsNeverTrainedOn) {
  const Scratch folder;
  const std::string a = folder.write("a.bin", "");
  const std::string b = folder.write("b.bin", "");
  const std::string link = folder.path("link.bin");
  std::filesystem::create_symlink(b, link);
  const auto left_out = "data.train: " + b + " is left out: a file of data.validation";
  const DataFiles of_folder = find_data_files({folder.path()}, {b});
  EXPECT_THAT(of_folder.train, ElementsAre(a));
  EXPECT_THAT(of_folder.validation, ElementsAre(b));
  EXPECT_THAT(of_folder.lines, ::testing::Contains(left_out));
  const DataFiles of_pattern = find_data_files({folder.path("?.bin")}, {link});
  EXPECT_THAT(of_pattern.train, ElementsAre(a));
  EXPECT_THAT(of_pattern.lines, ElementsAre(left_out));
  EXPECT_THAT(error_of([&] {
                find_data_files({a, b}, {folder.path("b*")});
              }),
              HasSubstr("data.train names " + b + ", which is a file of data.validation too"));
  EXPECT_THAT(error_of([&] { find_data_files({folder.path()}, {folder.path()}); }),
              HasSubstr("data.train: all of its 3 file(s) are files of data.validation"));
  const std::string misspelt = folder.path("tokesn");
  EXPECT_EQ(error_of([&] { find_data_files({misspelt}, {misspelt}); }),
            "data.train and data.validation name " + misspelt +
                ", which is not there; correct the name, or make token files with zero_prepare");
}

}  // namespace
}  // namespace zero::testing
