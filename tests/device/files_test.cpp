// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "files/file_system.h"
#include "tests/device/restricted_thread.h"
#include "tests/device/supervised_thread.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero::files {
namespace {

using ::testing::AnyOf;
using testing::file_bytes;
using testing::FileSizeLimit;
using testing::give_up_root;
using ::testing::HasSubstr;
using testing::on_own_thread;
using testing::Scratch;
using testing::write_bytes;
using zero::error_of;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Disk, ReadingBehindTheEndSaysWhereItEnds) {
  Scratch scratch;
  const std::string path = scratch.path("short");
  write_bytes(path, "12345");
  const auto file = disk().open_read(path);
  EXPECT_EQ(file->path(), path);
  EXPECT_EQ(file->size(), 5);
  std::vector<std::byte> out(4);
  EXPECT_EQ(error_of([&] { file->read(3, out); }),
            path + ": ends at offset 5, expected 2 more bytes there: the file was cut");
  EXPECT_EQ(error_of([&] { file->read(-1, out); }),
            path + ": cannot read 4 bytes at offset -1: Invalid argument");
}

TEST(Disk, AWriteThatTheSystemCutsShortGoesOnAndNamesWhereItFails) {
  Scratch scratch;
  const std::string path = scratch.path("limited");
  const auto file = disk().create(path, 0);
  const FileSizeLimit limit(6);
  EXPECT_EQ(error_of([&] { file->write(2, bytes("abcdefgh")); }),
            path + ": cannot write 4 bytes at offset 6: File too large");
  EXPECT_EQ(file_bytes(path), std::string("\0\0abcd", 6));
  EXPECT_EQ(error_of([&] { disk().create(path, 7); }),
            path + ": cannot make room for 7 bytes: File too large");
}

TEST(Disk, ACreatedFileIsEmptyAndHasItsSpace) {
  Scratch scratch;
  const std::string path = scratch.path("file");
  write_bytes(path, "old content");
  disk().create(path, 5);
  EXPECT_EQ(file_bytes(path), std::string(5, '\0'));
  disk().create(path, 1 << 20)->sync();
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, 1 << 20);
  disk().open_write(path)->write(3, bytes("abc"));
  EXPECT_EQ(file_bytes(path).substr(0, 7), std::string("\0\0\0abc\0", 7));
}

TEST(Disk, SignalsOnlyDelayIt) {
  for (const long call : {SYS_openat, SYS_fallocate, SYS_ftruncate, SYS_fsync}) {
    Scratch scratch;
    const std::string path = scratch.path("file");
    const testing::SystemAnswer system = testing::first_calls_end_with(EINTR, 2);
    int calls = 0;
    const auto answer = [&](const testing::SystemCall& asked) {
      ++calls;
      return call == SYS_fallocate && calls > 2 ? -EOPNOTSUPP : system(asked);
    };
    const std::string ended = testing::on_supervised_thread(call, answer, [&] {
      if (call == SYS_ftruncate) {
        ASSERT_TRUE(testing::refuse({SYS_fallocate, EOPNOTSUPP, 0, 0}));
      }
      disk().create(path, 5000)->sync();
      disk().sync_folder(scratch.path());
    });
    if (ended == testing::kNoSupervision) GTEST_SKIP() << ended;
    EXPECT_EQ(ended, "no error") << call;
    EXPECT_GE(calls, 3) << call;
    EXPECT_EQ(file_bytes(path), std::string(5000, '\0')) << call;
  }
}

TEST(Disk, SyncsReachTheSystemAndTheirFailuresTheCaller) {
  Scratch scratch;
  const std::string path = scratch.path("file");
  std::vector<std::string> synced;
  int error = 0;
  const auto answer = [&](const testing::SystemCall& asked) {
    synced.push_back(
        std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(asked.arguments[0])));
    return error == 0 ? asked.run() : -error;
  };
  const auto messages = [&](int with) {
    error = with;
    std::string file;
    const std::string folder = testing::on_supervised_thread(SYS_fsync, answer, [&] {
      const auto output = disk().create(path, 5);
      file = error_of([&] { output->sync(); });
      disk().sync_folder(scratch.path());
    });
    return std::vector<std::string>{file, folder};
  };
  const std::vector<std::string> good = messages(0);
  if (good[1] == testing::kNoSupervision) GTEST_SKIP() << good[1];
  EXPECT_EQ(good, (std::vector<std::string>{"no error", "no error"}));
  EXPECT_EQ(synced, (std::vector<std::string>{path, scratch.path()}));
  EXPECT_EQ(messages(EIO), (std::vector<std::string>{
                               path + ": cannot flush to disk: Input/output error",
                               scratch.path() + ": cannot flush the folder: Input/output error"}));
  // A file system that has no fsync for folders.
  EXPECT_EQ(messages(EINVAL), (std::vector<std::string>{
                                  path + ": cannot flush to disk: Invalid argument", "no error"}));
}

TEST(Links, AreFollowedAtTheEndAndOnTheWay) {
  Scratch scratch;
  const std::string at = std::filesystem::canonical(scratch.path()).string() + "/";
  std::filesystem::create_directories(at + "real/deep");
  write_bytes(at + "real/file", "");
  const auto link = [&](const std::string& to, const std::string& name) {
    std::filesystem::create_symlink(to, at + name);
  };
  link("real/deep", "way");
  link("../way/../file", "real/back");  // ".." is that of real/deep, where "way" leads
  link(at + "real/back", "chain");
  link("none/../nothing", "dangling");
  link("real/", "slash");
  link("loop/x", "loop");
  const auto names = [&](const std::string& path) { return names_by_links(at + path); };
  EXPECT_EQ(names("real/file"), std::vector{at + "real/file"});
  EXPECT_EQ(names("chain"), (std::vector{at + "chain", at + "real/back", at + "real/../way/../file",
                                         at + "real/../real/deep/../file"}));
  EXPECT_EQ(names("loop").size(), 41U);
  const auto end = [&](const std::string& path) { return behind_links(at + path); };
  EXPECT_EQ(end("chain"), at + "real/file");
  EXPECT_EQ(end("way/../file"), at + "real/file");  // by its letters alone, at + "file"
  EXPECT_EQ(end("way/new"), at + "real/deep/new");
  EXPECT_EQ(end("dangling"), at + "nothing");
  EXPECT_EQ(end("slash"), at + "real");
  EXPECT_EQ(end("./way//"), at + "real/deep");
  EXPECT_EQ(behind_links("no_such.log"), "no_such.log");
}

TEST(Places, AreToldThroughLinks) {
  Scratch scratch;
  const std::string file = scratch.write("file", "");
  const std::string link = scratch.path("link");
  std::filesystem::create_symlink("file", link);
  EXPECT_TRUE(same_place(link, file));
  EXPECT_TRUE(same_place(
      scratch.path() + "/../" + std::filesystem::path(scratch.path()).filename().string(),
      scratch.path()));
  EXPECT_FALSE(same_place(file, scratch.write("other", "")));
  EXPECT_FALSE(same_place(file, scratch.path("none")));
  EXPECT_FALSE(same_place(scratch.path("none"), scratch.path("none")));
}

TEST(Disk, NamesWhatCannotBeOpened) {
  Scratch scratch;
  const std::string none = scratch.path("none");
  EXPECT_EQ(error_of([&] { disk().open_read(none); }),
            none + ": cannot open for reading: No such file or directory");
  EXPECT_EQ(error_of([&] { disk().open_write(none); }),
            none + ": cannot open for writing: No such file or directory");
  EXPECT_EQ(error_of([&] { disk().open_read(scratch.path()); }),
            scratch.path() + ": is not a regular file");
  const std::string ended = testing::on_supervised_thread(
      SYS_openat, testing::first_calls_end_with(EMFILE), [&] { disk().open_read(none); });
  EXPECT_THAT(ended, AnyOf(none + ": cannot open for reading: Too many open files; raise the limit "
                                  "of open files (ulimit -n)",
                           testing::kNoSupervision));
  const std::string pipe = scratch.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { disk().open_read(pipe); }), pipe + ": is not a regular file");
  EXPECT_EQ(error_of([&] { disk().create(pipe, 1); }), pipe + ": is not a regular file");
  EXPECT_EQ(error_of([&] { disk().create("/dev/null", 1); }), "/dev/null: is not a regular file");
  EXPECT_EQ(error_of([&] { disk().create(none, -1); }),
            none + ": cannot make room for -1 bytes: Invalid argument");
}

TEST(Disk, TellsWhatAPathIs) {
  Scratch scratch;
  write_bytes(scratch.path("file"), "");
  std::filesystem::create_symlink("file", scratch.path("link"));
  std::filesystem::create_symlink("none", scratch.path("dangling"));
  EXPECT_EQ(disk().kind_of(scratch.path("file")), PathKind::file);
  EXPECT_EQ(disk().kind_of(scratch.path("link")), PathKind::file);
  EXPECT_EQ(disk().kind_of(scratch.path("dangling")), PathKind::missing);
  EXPECT_EQ(disk().kind_of(scratch.path("file/below")), PathKind::missing);
  EXPECT_EQ(disk().kind_of(scratch.path()), PathKind::folder);
  EXPECT_EQ(disk().kind_of("/dev/null"), PathKind::other);
  const std::string looped = scratch.path("loop");
  std::filesystem::create_symlink("loop", looped);
  EXPECT_EQ(error_of([&] { disk().kind_of(looped); }),
            looped + ": cannot look there: Too many levels of symbolic links");
}

TEST(Disk, MakesListsAndRemovesFolders) {
  Scratch scratch;
  const std::string folder = scratch.path("folder");
  disk().make_folder(folder);
  disk().make_folder(folder);
  for (const char* name : {"b", "a", ".c"}) disk().create(folder + "/" + name, 0);
  disk().make_folder(folder + "/B");
  disk().sync_folder(folder);
  EXPECT_EQ(disk().list(folder), (std::vector<std::string>{".c", "B", "a", "b"}));
  EXPECT_EQ(error_of([&] { disk().remove_folder(folder); }),
            folder + ": cannot remove the folder: Directory not empty");
  for (const char* name : {"b", "a", ".c"}) disk().remove_file(folder + "/" + name);
  disk().remove_folder(folder + "/B");
  EXPECT_EQ(disk().list(folder), std::vector<std::string>());
  disk().remove_folder(folder);
  EXPECT_EQ(scratch.names(), std::vector<std::string>());

  EXPECT_EQ(error_of([&] { disk().list(folder); }),
            folder + ": cannot list the folder: No such file or directory");
  disk().remove_file(folder);
  disk().remove_folder(folder);
  EXPECT_EQ(error_of([&] { disk().sync_folder(folder); }),
            folder + ": cannot open the folder: No such file or directory");
  EXPECT_EQ(error_of([&] { disk().make_folder(folder + "/deeper"); }),
            folder + "/deeper: cannot make the folder: No such file or directory");
  write_bytes(folder, "");
  EXPECT_EQ(error_of([&] { disk().make_folder(folder); }),
            folder + ": cannot make the folder: File exists");
  EXPECT_EQ(error_of([&] { disk().remove_file(folder + "/below"); }),
            folder + "/below: cannot remove the file: Not a directory");
}

TEST(Disk, RenamesOverFilesButNotOverFolders) {
  Scratch scratch;
  write_bytes(scratch.path("one"), "1");
  write_bytes(scratch.path("two"), "2");
  disk().rename(scratch.path("one"), scratch.path("two"));
  EXPECT_EQ(file_bytes(scratch.path("two")), "1");
  disk().make_folder(scratch.path("from"));
  disk().make_folder(scratch.path("to"));
  EXPECT_EQ(error_of([&] { disk().rename(scratch.path("from"), scratch.path("to")); }),
            scratch.path("to") + ": cannot rename folder " + scratch.path("from") +
                " to it: File exists");
  disk().rename(scratch.path("from"), scratch.path("new"));
  EXPECT_EQ(scratch.names(), (std::vector<std::string>{"new", "to", "two"}));
}

#ifdef SYS_rename
constexpr long kRename = SYS_rename;
constexpr long kUnlink = SYS_unlink;
constexpr long kRmdir = SYS_rmdir;
#else
constexpr long kRename = SYS_renameat;
constexpr long kUnlink = SYS_unlinkat;
constexpr long kRmdir = SYS_unlinkat;
#endif

/// NFS, which repeats a request whose reply was lost: the call happens and is said to have failed.
long reply_is_lost(const testing::SystemCall& asked) {
  asked.run();
  return -ENOENT;
}

TEST(Disk, ARenameThatIsSaidToHaveFailedIsOneIfTheFileHasItsNewName) {
  Scratch scratch;
  const std::string from = scratch.path("from");
  const std::string to = scratch.path("to");
  const std::string folder = scratch.path("folder");
  write_bytes(from, "new");
  write_bytes(to, "old");
  const std::string ended = testing::on_supervised_thread(kRename, reply_is_lost, [&] {
    disk().rename(from, to);
    disk().make_folder(from);
    disk().rename(from, folder);
  });
  if (ended == testing::kNoSupervision) GTEST_SKIP() << ended;
  EXPECT_EQ(ended, "no error");
  EXPECT_EQ(file_bytes(to), "new");
  EXPECT_EQ(scratch.names(), (std::vector<std::string>{"folder", "to"}));

  write_bytes(from, "newer");
  const auto another_removes_it = [&](const testing::SystemCall& /*asked*/) {
    std::filesystem::remove(from);
    return static_cast<long>(-ENOENT);
  };
  EXPECT_EQ(
      testing::on_supervised_thread(kRename, another_removes_it, [&] { disk().rename(from, to); }),
      to + ": cannot rename " + from + " to it: No such file or directory");
}

TEST(Disk, ARemovalThatIsSaidToHaveFailedIsOne) {
  Scratch scratch;
  const std::string file = scratch.path("file");
  const std::string folder = scratch.path("folder");
  write_bytes(file, "");
  disk().make_folder(folder);
  const std::string ended =
      testing::on_supervised_thread(kUnlink, reply_is_lost, [&] { disk().remove_file(file); });
  if (ended == testing::kNoSupervision) GTEST_SKIP() << ended;
  EXPECT_EQ(ended, "no error");
  EXPECT_EQ(
      testing::on_supervised_thread(kRmdir, reply_is_lost, [&] { disk().remove_folder(folder); }),
      "no error");
  EXPECT_EQ(scratch.names(), std::vector<std::string>());
}

TEST(Disk, TellsTheFreeSpaceOfFoldersThatMayBeWrittenTo) {
  Scratch scratch;
  EXPECT_GT(disk().free_bytes(scratch.path()), 0);
  EXPECT_EQ(error_of([&] { disk().free_bytes(scratch.path("none")); }),
            scratch.path("none") + ": cannot read its free space: No such file or directory");
  if (::access("/proc", W_OK) == 0) {  // a file system without blocks
    EXPECT_EQ(disk().free_bytes("/proc"), std::numeric_limits<std::int64_t>::max());
  }
  ASSERT_EQ(::chmod(scratch.path().c_str(), 0500), 0);
  EXPECT_EQ(on_own_thread([&] {
              if (give_up_root()) disk().free_bytes(scratch.path());
            }),
            scratch.path() + ": cannot write there: Permission denied");
  ASSERT_EQ(::chmod(scratch.path().c_str(), 0700), 0);
}

TEST(Disk, SeveralWritersOfOneFileDoNotDisturbEachOther) {
  Scratch scratch;
  constexpr std::int64_t kCount = 4000;
  const auto file = disk().create(scratch.path("file"), kCount);
  std::vector<std::jthread> threads;
  for (int writer = 0; writer < 4; ++writer) {
    threads.emplace_back([&, writer] {
      for (std::int64_t i = writer; i < kCount; i += 4) {
        const char value = static_cast<char>('a' + i % 26);
        file->write(i, bytes({&value, 1}));
      }
    });
  }
  threads.clear();
  const std::string found = file_bytes(scratch.path("file"));
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(found[i], static_cast<char>('a' + i % 26));
}

TEST(Disk, ReplacingNamesBothFiles) {
  Scratch scratch;
  const std::string from = scratch.path("from");
  const std::string to = scratch.path("to");
  EXPECT_EQ(error_of([&] { replace_file(disk(), from, to); }),
            to + ": cannot rename " + from + " to it: No such file or directory");
  write_bytes(from, "new");
  write_bytes(to, "old");
  replace_file(disk(), from, to);
  EXPECT_EQ(file_bytes(to), "new");
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"to"});
}

TEST(Disk, ATargetThatCannotBecomeAFileIsRefused) {
  Scratch scratch;
  const auto refusal_of = [](const std::string& path) {
    return error_of([&] { check_target(disk(), path); });
  };
  write_bytes(scratch.path("file"), "");
  EXPECT_EQ(refusal_of(scratch.path("file")), "no error");
  EXPECT_EQ(refusal_of(scratch.path("new")), "no error");
  EXPECT_THAT(refusal_of(scratch.path("none/new")),
              HasSubstr("cannot write there: folder " + scratch.path("none") +
                        ": No such file or directory"));
  EXPECT_THAT(refusal_of(scratch.path("file/new")),
              HasSubstr(scratch.path("file") + " is not a folder"));
  EXPECT_THAT(refusal_of(scratch.path()), HasSubstr("is there already and is not a regular file"));
  EXPECT_THAT(refusal_of("/dev/null"), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal_of(scratch.path() + "/"), HasSubstr("it names a folder"));
}

}  // namespace
}  // namespace zero::files
