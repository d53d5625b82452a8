// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/file_text.h"

#include <gtest/gtest.h>

#include <string_view>

#include "tests/scratch.h"

namespace zero {
namespace {

TEST(FileText, IsAllOfAFileOrItsEnd) {
  constexpr std::string_view kBytes("a\0\r\nlast", 8);
  const testing::Scratch folder;
  const std::string path = folder.write("file", kBytes);
  EXPECT_EQ(file_text(path), kBytes);
  EXPECT_EQ(file_text(path, 4), "last");
  EXPECT_EQ(file_text(path, 100), kBytes);
  EXPECT_EQ(file_text(path, 0), "");
}

TEST(FileText, IsThatOfFilesWithoutASize) {
  EXPECT_EQ(std::filesystem::file_size("/proc/self/status"), 0U);
  EXPECT_TRUE(file_text("/proc/self/status").starts_with("Name:"));
}

TEST(FileText, IsEmptyWhereNothingCanBeRead) {
  const testing::Scratch folder;
  EXPECT_EQ(file_text(folder.path("none")), "");
  EXPECT_EQ(file_text(folder.path("none"), 5), "");
  EXPECT_EQ(file_text(folder.path()), "") << "a folder";
}

}  // namespace
}  // namespace zero
