// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "base/host.h"
#include "base/message_text.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3; some systems allow no other anonymous file
#endif

namespace zero::host {
namespace {

using Token = std::array<std::uint64_t, 2>;

constexpr std::string_view kShape =
    "PROCESS START PID_NAMESPACE USER_NAMESPACE DESCRIPTOR BYTES TOKEN TOKEN";

Token random_token() {
  Token token{};
  ZERO_CHECK(getrandom(token.data(), sizeof token, 0) == sizeof token, "getrandom: {}",
             std::strerror(errno));
  return token;
}

// Without MFD_NOEXEC_SEAL if the system does not know it.
int create(const char* name) {
  const int file = memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
  return file >= 0 || errno != EINVAL ? file : memfd_create(name, MFD_CLOEXEC);
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

void check_contents(const Descriptor& file, const std::string& path, const Invitation& to) {
  struct stat status {};
  ZERO_CHECK(fstat(file.get(), &status) == 0, "{}: {}", path, std::strerror(errno));
  ZERO_CHECK(status.st_uid == geteuid(), "{} is a file of user {}, expected one of user {}", path,
             status.st_uid, geteuid());
  ZERO_CHECK(status.st_size == to.bytes + page_bytes(), "{} has {} bytes, expected {}", path,
             status.st_size, to.bytes + page_bytes());
  Token token{};
  const ssize_t length = pread(file.get(), token.data(), sizeof token, to.bytes);
  ZERO_CHECK(length == sizeof token && token == to.token,
             "{} holds another token than the invitation: it is another job's file", path);
}

}  // namespace

std::string Invitation::text() const {
  return fmt::format("{} {} {} {} {} {} {:x} {:x}", process.id, process.start, space, users,
                     descriptor, bytes, token[0], token[1]);
}

Invitation Invitation::parse(const std::string& text) {
  Invitation to;
  std::istringstream words(text);
  words >> to.process.id >> to.process.start >> to.space >> to.users >> to.descriptor >> to.bytes >>
      std::hex >> to.token[0] >> to.token[1];
  ZERO_CHECK(!words.fail() && words.peek() == std::istringstream::traits_type::eof(),
             "\"{}\" is no invitation to a process's memory, expected \"{}\"", printable_line(text),
             kShape);
  return to;
}

SharedFile::SharedFile(const char* name, std::int64_t bytes)
    : bytes_(bytes), token_(random_token()), file_(create(name)) {
  ZERO_CHECK(file_.get() >= 0, "memfd_create: {}", std::strerror(errno));
  const std::int64_t whole = bytes + page_bytes();
  ZERO_CHECK(whole <= longest_file(), "files are limited to {} bytes (ulimit -f), {} are needed",
             longest_file(), whole);
  ZERO_CHECK(ftruncate(file_.get(), whole) == 0, "ftruncate to {} bytes: {}", whole,
             std::strerror(errno));
  ZERO_CHECK(pwrite(file_.get(), token_.data(), sizeof token_, bytes) == sizeof token_,
             "no memory for a page of a shared file: {}", std::strerror(errno));
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
  Descriptor file(
      openat(directory.get(), fmt::format("fd/{}", to.descriptor).c_str(), O_RDWR | O_CLOEXEC));
  ZERO_CHECK(file.get() >= 0, "{} cannot be opened: {}", path, std::strerror(errno));
  check_contents(file, path, to);
  return file;
}

}  // namespace zero::host
