// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What a new flight file takes the place of, and what it leaves.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/descriptor.h"
#include "launch/flight/flight_file.h"
#include "launch/flight/flight_place.h"
#include "launch/flight/flight_reader.h"
#include "tests/device/supervised_thread.h"
#include "tests/errors.h"
#include "tests/launch/flight_places.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

/// What create() of a flight file at `place` says as a user who may not open others' files; the
/// folder's are everybody's to remove.
std::string refusal_of_another_user(const std::string& place) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const Descriptor out(ends[0]);
  Descriptor in(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) ::_exit(1);
    const std::string text = error_of([&] { FlightFile::create(place, 0, 1); });
    ::_exit(::write(in.get(), text.data(), text.size()) == std::ssize(text) ? 0 : 1);
  }
  in = Descriptor(-1);
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(out.get(), text.data(), 4096))));
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return text;
}

TEST_F(FlightPlaces, AnotherUsersRunIsSeen) {
  for (const std::string& of : {server_.path(), memory_.path()}) {
    std::filesystem::permissions(of, std::filesystem::perms::all);
  }
  const std::string read_only = server_.path("rank_00000.flight");
  const FlightFile file = FlightFile::create(read_only, 0, 1);
  ASSERT_EQ(::chmod(read_only.c_str(), 0444), 0);
  EXPECT_THAT(refusal_of_another_user(read_only),
              HasSubstr(read_only + " is the file of a run that goes on"));
  const std::string barred = path_in_memory(memory_.path(), 1, 1);
  const std::string link = server_.path("rank_00001.flight");
  FlightFile::create(barred, 1, 2, 1).link_at(link, "");
  ASSERT_EQ(::chmod(link.c_str(), 0444), 0);
  ASSERT_EQ(::chmod(barred.c_str(), 0), 0);
  EXPECT_THAT(refusal_of_another_user(link),
              HasSubstr(link + " leads to " + barred + ", which you may not open"));
  EXPECT_TRUE(std::filesystem::exists(read_only));
  EXPECT_TRUE(FlightLink::read(link));
}

/// The file of a run that was ended before it had written the first bytes, which are its last.
void write_half_made(const std::string& path) {
  FlightFile::create(path, 0, 1).end();
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.write(std::string(flight::kMagic.size(), '\0').data(), flight::kMagic.size());
}

TEST(FlightPlace, AHalfMadeFileIsReplacedIfItHasTheSizeOfAFlightFile) {
  const Scratch folder;
  const std::string path = folder.path("rank_00000.flight");
  write_half_made(path);
  EXPECT_TRUE(is_half_made(path));
  bool is_so = false;
  const std::string ended = on_supervised_thread(SYS_pread64, first_calls_end_with(EIO),
                                                 [&] { is_so = is_half_made(path); });
  EXPECT_FALSE(is_so) << "it could not be read: " << ended;
  FlightFile::create(path, 0, 1, 5).end();
  EXPECT_EQ(FlightReader(path).read().run, 5U);
  for (const std::size_t size : {std::size_t{1}, std::size_t{4096}}) {
    write_bytes(path, std::string(size, '\0'));
    EXPECT_FALSE(is_half_made(path)) << size;
    EXPECT_THAT(error_of([&] { FlightFile::create(path, 0, 1); }),
                HasSubstr("exists and is no flight file"));
    EXPECT_EQ(std::filesystem::file_size(path), size);
  }
}

TEST(FlightPlace, AYoungHalfMadeFileIsInUseWhereThereAreNoLocks) {
  const Scratch folder;
  const std::string path = folder.path("rank_00000.flight");
  write_half_made(path);
  const auto without_locks = [](const SystemCall& call) -> long {
    const auto command = static_cast<int>(call.arguments[1]);
    return command == F_OFD_GETLK || command == F_OFD_SETLK ? -ENOLCK : kCallerCalls;
  };
  const auto refusal = [&] {
    return on_supervised_thread(SYS_fcntl, without_locks,
                                [&] { FlightFile::create(path, 0, 1, 5); });
  };
  const std::string young = refusal();
  if (young == kNoSupervision) GTEST_SKIP() << young;
  EXPECT_THAT(young, HasSubstr(path + " is the file of a run that goes on"));
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(path, now - std::chrono::seconds(12));
  EXPECT_EQ(refusal(), "no error");
  EXPECT_EQ(FlightReader(path).read().run, 5U);
}

}  // namespace
}  // namespace zero::testing
