// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/job_secret.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/checked_math.h"
#include "base/descriptor.h"
#include "base/error.h"

namespace zero {
namespace {

constexpr std::string_view kFileVariable = "ZERO_JOB_SECRET_FILE";

// Checks the open file rather than the path, so that nobody can exchange the file in between.
void check_private(int descriptor, const std::string& path) {
  struct stat found {};
  ZERO_CHECK(::fstat(descriptor, &found) == 0, "{}: {}: cannot be examined: {}", kFileVariable,
             path, std::generic_category().message(errno));
  ZERO_CHECK(S_ISREG(found.st_mode), "{}: {}: is not a regular file; give a file of the secret",
             kFileVariable, path);
  ZERO_CHECK(found.st_uid == ::geteuid(),
             "{}: {}: belongs to user id {}, this process to {}; give a file of this user's",
             kFileVariable, path, found.st_uid, ::geteuid());
  const unsigned mode = found.st_mode & 07777U;
  ZERO_CHECK((mode & ~0600U) == 0,
             "{}: {}: has mode {:04o}, expected 0600 or stricter; others may know the secret: make "
             "a new one, in a file made with umask 077",
             kFileVariable, path, mode);
}

std::string content(int descriptor, const std::string& path) {
  // One byte more than the longest secret with its newline reveals a longer one.
  std::string bytes(JobSecret::kMostBytes + 2, '\0');
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = ::read(descriptor, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    ZERO_CHECK(got >= 0, "{}: {}: cannot be read: {}", kFileVariable, path,
               std::generic_category().message(errno));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  std::string_view secret(bytes.data(), size);
  for (const std::string_view end : {"\r\n", "\n"}) {
    if (!secret.ends_with(end)) continue;
    secret.remove_suffix(end.size());
    break;
  }
  return std::string(secret);
}

unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::string digest(32, '\0');
  const bool done = ::HMAC(::EVP_sha256(), key.data(), narrow<int>(std::ssize(key)), bytes_of(text),
                           text.size(), bytes_of(digest), nullptr) != nullptr;
  ZERO_CHECK(done, "OpenSSL computes no HMAC-SHA256 here; its configuration may forbid it");
  return digest;
}

JobSecret::JobSecret(std::string bytes, std::string_view source) : bytes_(std::move(bytes)) {
  ZERO_CHECK(bytes_.size() >= kLeastBytes && bytes_.size() <= kMostBytes,
             "{}: the job's secret has {} bytes, expected {} to {}; make one with \"openssl rand "
             "-hex 32\"",
             source, bytes_.size(), kLeastBytes, kMostBytes);
}

JobSecret JobSecret::of_file(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not block before the pipe is refused.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  ZERO_CHECK(file.get() >= 0, "{}: {}: cannot be opened: {}", kFileVariable, path,
             std::generic_category().message(errno));
  check_private(file.get(), path);
  return JobSecret(content(file.get(), path), fmt::format("{}: {}", kFileVariable, path));
}

JobSecret JobSecret::known_to_all() {
  return JobSecret("zero-store: a job without a secret", "a job without a secret");
}

std::string JobSecret::hmac(std::string_view text) const { return hmac_sha256(bytes_, text); }

}  // namespace zero
