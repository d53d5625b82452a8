// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/shared_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/page.h"
#include "base/printable.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3; some systems allow no other anonymous file
#endif

namespace zero::host {
namespace {

using Token = std::array<std::uint64_t, 2>;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 46;  // of address space that a process has
constexpr std::size_t kWords = 7;
constexpr std::string_view kShape =
    "PROCESS START PID_NAMESPACE USER_NAMESPACE DESCRIPTOR BYTES TOKEN";

Token random_token() {
  Token token{};
  ZERO_CHECK(getrandom(token.data(), sizeof token, 0) == sizeof token, "getrandom: {}",
             std::strerror(errno));
  return token;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t end = 0; end != std::string_view::npos && words.size() <= kWords;) {
    end = text.find(' ');
    words.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return words;
}

// The whole word as a number of `base`, without sign, of at most `largest`.
bool read_number(std::string_view word, std::uint64_t largest, std::uint64_t& value,
                 int base = 10) {
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value, base);
  return error == std::errc() && stop == end && value <= largest;
}

// `before`: the text before the number, such as "pid:[".
bool is_namespace(std::string_view word, std::string_view before) {
  std::uint64_t inode = 0;
  return word.starts_with(before) && word.ends_with(']') &&
         read_number(word.substr(before.size(), word.size() - before.size() - 1), UINT64_MAX,
                     inode);
}

bool read_token(std::string_view word, Token& token) {
  constexpr std::size_t kDigits = 16;
  return word.size() == 2 * kDigits &&
         read_number(word.substr(0, kDigits), UINT64_MAX, token[0], 16) &&
         read_number(word.substr(kDigits), UINT64_MAX, token[1], 16);
}

// Without MFD_NOEXEC_SEAL if the system does not know it.
int create(const char* name) {
  const int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  return file >= 0 || errno != EINVAL ? file : memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

// The directory of the process in /proc, after a check that it is the process meant. The descriptor
// never refers to another process: once the process ends, look-ups in it fail.
Descriptor directory_of(const Process& process) {
  const std::string path = fmt::format("/proc/{}", process.id);
  Descriptor directory(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  ZERO_CHECK(directory.get() >= 0, "{} cannot be opened: {}", path, std::strerror(errno));
  struct stat status {};
  ZERO_CHECK(fstat(directory.get(), &status) == 0, "{}: {}", path, std::strerror(errno));
  ZERO_CHECK(status.st_uid == geteuid(),
             "{} is of user {}, expected user {}; start all ranks as one user", path, status.st_uid,
             geteuid());
  const std::uint64_t start = start_of(directory);
  ZERO_CHECK(start != 0, "{}/stat cannot be read: {}", path, std::strerror(errno));
  ZERO_CHECK(start == process.start,
             "{} began at clock tick {}, expected {}: it is not the process that invited", path,
             start, process.start);
  return directory;
}

void check_kind(const Descriptor& file, const std::string& path) {
  struct stat status {};
  ZERO_CHECK(fstat(file.get(), &status) == 0, "{}: {}", path, std::strerror(errno));
  ZERO_CHECK(S_ISREG(status.st_mode), "{} has file type {:o}, expected a regular file ({:o})", path,
             status.st_mode & S_IFMT, S_IFREG);
  ZERO_CHECK(status.st_uid == geteuid(), "{} is a file of user {}, expected one of user {}", path,
             status.st_uid, geteuid());
  struct statfs system {};
  ZERO_CHECK(fstatfs(file.get(), &system) == 0, "{}: {}", path, std::strerror(errno));
  ZERO_CHECK(system.f_type == TMPFS_MAGIC,
             "{} is on a file system of type {:#x}, expected one in memory (tmpfs, {:#x})", path,
             static_cast<std::uint64_t>(system.f_type), TMPFS_MAGIC);
}

// The size is read after the check of the seal, so it cannot change.
void check_contents(const Descriptor& file, const std::string& path, const Invitation& to) {
  const int seals = fcntl(file.get(), F_GET_SEALS);
  ZERO_CHECK(seals >= 0 && (seals & kSeals) == kSeals,
             "{} has the seals {:#x}, expected {:#x}: it is not memory that a rank shares", path,
             std::max(seals, 0), kSeals);
  struct stat status {};
  ZERO_CHECK(fstat(file.get(), &status) == 0, "{}: {}", path, std::strerror(errno));
  ZERO_CHECK(status.st_size == to.bytes + page_bytes(), "{} has {} bytes, expected {}", path,
             status.st_size, to.bytes + page_bytes());
  Token token{};
  const ssize_t length = pread(file.get(), token.data(), sizeof token, to.bytes);
  ZERO_CHECK(length == sizeof token && token == to.token,
             "{} holds another token than the invitation: it is another job's file", path);
}

}  // namespace

std::string Invitation::text() const {
  return fmt::format("{} {} {} {} {} {} {:016x}{:016x}", process.id, process.start, space, users,
                     descriptor, bytes, token[0], token[1]);
}

Invitation Invitation::parse(std::string_view text) {
  const auto words = words_of(text);
  const auto check = [&](bool holds, std::string_view what) {
    ZERO_CHECK(holds, "\"{}\" is no invitation to a process's memory: {} is wrong; expected \"{}\"",
               printable_line(text), what, kShape);
  };
  check(words.size() == kWords, "the number of words");
  Invitation to;
  std::uint64_t id = 0;
  std::uint64_t descriptor = 0;
  std::uint64_t bytes = 0;
  check(read_number(words[0], INT32_MAX, id) && id > 0, "PROCESS");
  check(read_number(words[1], UINT64_MAX, to.process.start), "START");
  check(is_namespace(words[2], "pid:["), "PID_NAMESPACE");
  check(is_namespace(words[3], "user:["), "USER_NAMESPACE");
  check(read_number(words[4], INT32_MAX, descriptor), "DESCRIPTOR");
  check(read_number(words[5], kMostBytes, bytes) && bytes > 0 && bytes % page_bytes() == 0,
        "BYTES");
  check(read_token(words[6], to.token), "TOKEN");
  to.process.id = static_cast<int>(id);
  to.space = words[2];
  to.users = words[3];
  to.descriptor = static_cast<int>(descriptor);
  to.bytes = static_cast<std::int64_t>(bytes);
  return to;
}

SharedFile::SharedFile(const char* name, std::int64_t bytes)
    : bytes_(bytes), token_(random_token()), file_(create(name)) {
  ZERO_CHECK(file_.get() >= 0, "memfd_create: {}", std::strerror(errno));
  const std::int64_t whole = bytes + page_bytes();
  rlimit largest{};
  getrlimit(RLIMIT_FSIZE, &largest);  // beyond it a signal would end the process
  ZERO_CHECK(
      largest.rlim_cur == RLIM_INFINITY || static_cast<std::uint64_t>(whole) <= largest.rlim_cur,
      "files are limited to {} bytes (ulimit -f), {} are needed", largest.rlim_cur, whole);
  ZERO_CHECK(ftruncate(file_.get(), whole) == 0, "ftruncate to {} bytes: {}", whole,
             std::strerror(errno));
  ZERO_CHECK(pwrite(file_.get(), token_.data(), sizeof token_, bytes) == sizeof token_,
             "no memory for a page of a shared file: {}", std::strerror(errno));
  ZERO_CHECK(fcntl(file_.get(), F_ADD_SEALS, kSeals) == 0, "a shared file cannot be sealed: {}",
             std::strerror(errno));
}

Invitation SharedFile::invitation() const {
  return {this_process(), process_namespace(), user_namespace(), file_.get(), bytes_, token_};
}

Descriptor opened(const Invitation& to) {
  // Across user namespaces, only a process of an enclosing namespace could open the other's files,
  // never both ways.
  ZERO_CHECK(to.users == user_namespace(),
             "process {} runs in another user namespace (a container for each rank), {}; this one "
             "in {}; start the launcher inside one container, or share the namespace (apptainer "
             "--sharens)",
             to.process.id, to.users, user_namespace());
  ZERO_CHECK(to.space == process_namespace(),
             "process {} runs in another PID namespace, {}; this one in {}", to.process.id,
             to.space, process_namespace());
  const std::string path = fmt::format("/proc/{}/fd/{}", to.process.id, to.descriptor);
  const Descriptor directory = directory_of(to.process);
  const Descriptor place(
      openat(directory.get(), fmt::format("fd/{}", to.descriptor).c_str(), O_PATH | O_CLOEXEC));
  ZERO_CHECK(place.get() >= 0, "{} cannot be opened: {}", path, std::strerror(errno));
  check_kind(place, path);
  Descriptor file(
      open(fmt::format("/proc/self/fd/{}", place.get()).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  ZERO_CHECK(file.get() >= 0, "{} cannot be opened: {}", path, std::strerror(errno));
  check_contents(file, path, to);
  return file;
}

}  // namespace zero::host
