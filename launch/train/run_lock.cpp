// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/run_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/host.h"
#include "base/message_text.h"
#include "files/disk_calls.h"
#include "files/file_system.h"
#include "launch/process/open_files.h"

namespace zero {
namespace {

std::string this_process() {
  return fmt::format("process {} on host {}, since {:%Y-%m-%d %H:%M:%S} UTC", ::getpid(),
                     host_name(), fmt::gmtime(std::time(nullptr)));
}

/// A process names itself just after it has the lock.
std::string holder_of(int file) {
  std::array<char, 256> text{};
  const ssize_t size = ::pread(file, text.data(), text.size(), 0);
  if (size <= 0) return "another process";
  return printable_line({text.data(), static_cast<std::size_t>(size)});
}

/// Who may write to the folder may lock: folders are shared by users. A file of another user that
/// cannot be written is opened for reading.
Descriptor open_lock(const std::string& path) {
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  Descriptor file(::open(path.c_str(), O_RDWR | kFlags));
  if (file.get() < 0 && errno == ENOENT) {
    file = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | kFlags, 0644));
    struct stat folder {};
    if (file.get() >= 0 && ::stat(files::folder_of(path).c_str(), &folder) == 0) {
      static_cast<void>(::fchmod(file.get(), 0644 | (folder.st_mode & 0666)));
    }
  }
  if (file.get() < 0 && errno == EACCES) file = Descriptor(::open(path.c_str(), kFlags));
  return file;
}

}  // namespace

RunLock::RunLock(Place place, std::chrono::milliseconds patience) : place_(std::move(place)) {
  constexpr std::chrono::milliseconds kBetween{50};
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const Attempt result = attempt();
    if (result == Attempt::locked || result == Attempt::unavailable) return;
    if (result == Attempt::again) continue;
    ZERO_CHECK(std::chrono::steady_clock::now() < end,
               "{0}: {1} is another run's: {2}, writes there; end that run or wait for its end, or "
               "give this one another {0} (if its host is gone for good, remove {3})",
               place_.key, place_.path, holder_, place_.file);
    std::this_thread::sleep_for(kBetween);
  }
}

RunLock::Attempt RunLock::attempt() {
  const auto unavailable = [this](int reason) {
    warning_ =
        fmt::format("{}: {} cannot be locked: {}: a second run that writes to {} is not noticed",
                    place_.key, place_.file, std::generic_category().message(reason), place_.path);
    return Attempt::unavailable;
  };
  file_ = open_lock(place_.file);
  if (file_.get() < 0) return unavailable(errno);
  const int failure = lock_file(file_.get());
  if (failure == EAGAIN) {
    holder_ = holder_of(file_.get());
    return Attempt::taken;
  }
  if (failure != 0) return unavailable(failure);
  if (!is_file()) return Attempt::again;  // its holder has removed it meanwhile
  const std::string text = this_process();
  // A full disk leaves the holder without a name, and the lock as good.
  static_cast<void>(::ftruncate(file_.get(), 0) == 0 &&
                    ::pwrite(file_.get(), text.data(), text.size(), 0) > 0);
  return Attempt::locked;
}

/// Whether the path still leads to the open file.
bool RunLock::is_file() const {
  struct stat open {};
  struct stat named {};
  return files::uninterrupted([&] { return ::fstat(file_.get(), &open); }) == 0 &&
         files::uninterrupted([&] { return ::lstat(place_.file.c_str(), &named); }) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev &&
         open.st_nlink > 0;  // NFS may answer for a name that is gone
}

void RunLock::check() const {
  ZERO_CHECK(!warning_.empty() || is_file(),
             "{0}: {1}: the folder was removed or is another run's now: {2} is not this run's any "
             "more; start this one again, with another {0} if another run has that one",
             place_.key, place_.path, place_.file);
}

RunLock::~RunLock() {
  if (warning_.empty() && is_file()) ::unlink(place_.file.c_str());
}

std::unique_ptr<RunLock> lock_checkpoints(const std::string& folder) {
  if (folder.empty()) return nullptr;
  return std::make_unique<RunLock>(
      RunLock::Place{.key = "run.checkpoint.folder", .path = folder, .file = folder + "/LOCK"});
}

std::string lock_beside(const std::string& path) { return files::behind_links(path) + ".lock"; }

std::unique_ptr<RunLock> lock_log(const std::string& log) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (log.empty() || (fs::exists(log, error) && !fs::is_regular_file(log, error))) return nullptr;
  return std::make_unique<RunLock>(
      RunLock::Place{.key = "run.log", .path = log, .file = lock_beside(log)});
}

}  // namespace zero
