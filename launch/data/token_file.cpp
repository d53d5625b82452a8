// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"

namespace zero {
namespace {

constexpr std::int32_t kEvaluationMagic = 20240522;

using Header = std::array<std::int32_t, 256>;

/// The width that magic and version say.
std::int64_t token_bytes_of(const std::string& path, const Header& header) {
  ZERO_CHECK(header[0] != kEvaluationMagic,
             "{}: is an evaluation file of llm.c (magic {}), questions with answers; data.* takes "
             "token files, magic {} or {}",
             path, header[0], kTokenMagic, kLlama3Magic);
  ZERO_CHECK(header[0] == kTokenMagic || header[0] == kLlama3Magic,
             "{}: its first number is {}, expected the magic {} of a token file, or {} of one with "
             "Llama 3's tokens; make it with zero_prepare",
             path, header[0], kTokenMagic, kLlama3Magic);
  if (header[0] == kLlama3Magic) {
    ZERO_CHECK(header[1] == 7,
               "{}: has format version {}, expected 7 (uint32 tokens) behind the magic {}; make it "
               "again with llm.c's scripts or with zero_prepare",
               path, header[1], kLlama3Magic);
    return 4;
  }
  ZERO_CHECK(header[1] == 1 || header[1] == 2,
             "{}: has format version {}, expected 1 (uint16 tokens) or 2 (uint32 tokens)", path,
             header[1]);
  return header[1] == 1 ? 2 : 4;
}

}  // namespace

TokenFile::TokenFile(const std::string& path) : path_(path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ZERO_CHECK(file.get() >= 0,
             "{}: cannot open the token file: {}; make it with zero_prepare, or correct data.*",
             path, std::strerror(errno));
  struct stat status {};
  ZERO_CHECK(::fstat(file.get(), &status) == 0, "{}: cannot read its size: {}", path,
             std::strerror(errno));
  ZERO_CHECK(S_ISREG(status.st_mode),
             "{}: is not a file; data.* names token files made by zero_prepare", path);
  const auto bytes = static_cast<std::int64_t>(status.st_size);
  ZERO_CHECK(bytes >= kTokenHeaderBytes,
             "{}: has {} bytes, expected at least the header's {}; it is no token file or was "
             "truncated: make it "
             "again with zero_prepare",
             path, bytes, kTokenHeaderBytes);
  const auto size = static_cast<std::size_t>(bytes);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  ZERO_CHECK(data != MAP_FAILED, "{}: cannot map {} bytes: {}", path, bytes, std::strerror(errno));
  map_ = std::shared_ptr<const void>(
      data, [size](const void* p) { ::munmap(const_cast<void*>(p), size); });
  tokens_ = static_cast<const std::byte*>(data) + kTokenHeaderBytes;
  check_header(bytes);
}

void TokenFile::check_header(std::int64_t bytes) {
  Header header{};
  std::memcpy(header.data(), map_.get(), sizeof(header));
  token_bytes_ = token_bytes_of(path_, header);
  ZERO_CHECK(header[2] >= 0, "{}: its header counts {} tokens", path_, header[2]);
  count_ = header[2];
  ZERO_CHECK(bytes == file_bytes(),
             "{}: has {} bytes, expected {} for the {} tokens of its header; it was {}: make it "
             "again with "
             "zero_prepare",
             path_, bytes, file_bytes(), count_, bytes < file_bytes() ? "truncated" : "extended");
}

std::int64_t TokenFile::find_outside(std::int64_t begin, std::int64_t end,
                                     std::int64_t vocabulary) const {
  if (token_bytes_ == 2 && vocabulary > std::numeric_limits<std::uint16_t>::max()) return -1;
  for (std::int64_t i = begin; i < end; ++i) {
    if (at(i) >= vocabulary) return i;
  }
  return -1;
}

std::uint64_t TokenFile::fingerprint() const {
  constexpr std::int64_t kPart = 4096;
  const std::int64_t bytes = file_bytes();
  std::uint64_t hash = static_cast<std::uint64_t>(bytes);
  for (const std::int64_t begin :
       {std::int64_t{0}, bytes / 2, std::max<std::int64_t>(0, bytes - kPart)}) {
    const auto* data = static_cast<const std::byte*>(map_.get()) + begin;
    hash =
        XXH3_64bits_withSeed(data, static_cast<std::size_t>(std::min(kPart, bytes - begin)), hash);
  }
  return hash;
}

TokenFileWriter::TokenFileWriter(std::string path, std::int64_t token_bytes)
    : path_(std::move(path)), temporary_(path_ + ".tmp"), token_bytes_(token_bytes) {
  file_ = std::fopen(temporary_.c_str(), "wb");
  ZERO_CHECK(file_ != nullptr, "{}: cannot write: {}; give --out a folder you may write to",
             temporary_, std::strerror(errno));
  const Header empty{};
  put(empty.data(), sizeof(empty));
}

TokenFileWriter::~TokenFileWriter() {
  if (file_ != nullptr) std::fclose(file_);
  if (!committed_) ::unlink(temporary_.c_str());
}

void TokenFileWriter::put(const void* data, std::size_t bytes) {
  if (bytes == 0) return;  // an empty shard has no address to write from
  ZERO_CHECK(std::fwrite(data, 1, bytes, file_) == bytes,
             "{}: cannot write {} bytes: {}; free some space", temporary_, bytes,
             std::strerror(errno));
}

void TokenFileWriter::write(std::span<const std::uint32_t> tokens) {
  count_ += static_cast<std::int64_t>(tokens.size());
  if (token_bytes_ == 4) return put(tokens.data(), tokens.size_bytes());
  const std::vector<std::uint16_t> narrow(tokens.begin(), tokens.end());
  put(narrow.data(), narrow.size() * sizeof(std::uint16_t));
}

void TokenFileWriter::finish() {
  ZERO_CHECK(count_ <= std::numeric_limits<std::int32_t>::max(),
             "{}: {} tokens do not fit the header's count; make shards smaller with --shard-tokens",
             path_, count_);
  Header header{};
  header[0] = kTokenMagic;
  header[1] = token_bytes_ == 2 ? 1 : 2;
  header[2] = static_cast<std::int32_t>(count_);
  const bool rewound = std::fseek(file_, 0, SEEK_SET) == 0;
  ZERO_CHECK(rewound, "{}: cannot go back to the header: {}", temporary_, std::strerror(errno));
  put(header.data(), sizeof(header));
  const bool flushed = std::fflush(file_) == 0 && ::fsync(::fileno(file_)) == 0;
  ZERO_CHECK(flushed, "{}: cannot finish writing: {}; free some space", temporary_,
             std::strerror(errno));
  std::fclose(file_);
  file_ = nullptr;
}

void TokenFileWriter::commit() {
  ZERO_CHECK(std::rename(temporary_.c_str(), path_.c_str()) == 0, "{}: cannot rename {}: {}", path_,
             temporary_, std::strerror(errno));
  committed_ = true;
}

}  // namespace zero
