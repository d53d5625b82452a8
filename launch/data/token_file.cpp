// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/token_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/host.h"
#include "files/disk_calls.h"
#include "files/posix_file.h"
#include "weights/model_files.h"

namespace zero {
namespace {

using Header = std::array<std::int32_t, 256>;

/// The tokens at `bytes`, of `token_bytes` each.
void widen(const std::byte* bytes, std::int64_t token_bytes, std::span<std::uint32_t> tokens) {
  if (token_bytes == 4) {
    std::memcpy(tokens.data(), bytes, tokens.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::uint16_t token = 0;
    std::memcpy(&token, bytes + i * sizeof(token), sizeof(token));
    tokens[i] = token;
  }
}

/// Names the running host; one that cannot be named differs from all others.
std::string host_identity() {
  const std::string host = boot_id();
  return host.empty() ? fmt::format("{}", std::random_device()()) : host;
}

/// Names the file on its host.
std::string identity_of(files::InputFile& file) {
  static const std::string host = host_identity();
  struct stat status {};
  const int descriptor = files::posix_file(file).descriptor();
  ZERO_CHECK(files::uninterrupted([&] { return ::fstat(descriptor, &status); }) == 0,
             "{}: cannot look at it: {}", file.path(), files::reason_of(errno));
  return fmt::format("{} {} {} {}.{}", host, status.st_dev, status.st_ino, status.st_ctim.tv_sec,
                     status.st_ctim.tv_nsec);
}

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

[[noreturn]] void fail_outside(const TokenFile& file, std::int64_t position,
                               std::int64_t vocabulary) {
  fail(
      "{}: token {} has id {}, but model.vocabulary is {}; ids must be below it: use the model's "
      "tokenizer or raise model.vocabulary",
      file.path(), position, file.at(position), vocabulary);
}

}  // namespace

TokenFile::TokenFile(const std::string& path, Digest digest)
    : path_(path), file_(advised("data.* takes token files, which zero_prepare makes", [&] {
        return files::disk().open_read(path);
      })) {
  check_no_pointer(path, start_of_file(*file_, kLfsPointer.size()));
  const std::int64_t bytes = file_->size();
  ZERO_CHECK(bytes >= kTokenHeaderBytes,
             "{}: has {} bytes, expected at least the header's {}; it is no token file or was "
             "truncated: make it again with zero_prepare",
             path, bytes, kTokenHeaderBytes);
  identity_ = identity_of(*file_);
  read_header(bytes);
  if (digest == Digest::checked) read_digest_file();
}

void TokenFile::read_header(std::int64_t bytes) {
  Header header{};
  read_file(0, std::as_writable_bytes(std::span(header)));
  token_bytes_ = token_bytes_of(path_, header);
  ZERO_CHECK(header[2] >= 0, "{}: its header counts {} tokens", path_, header[2]);
  count_ = header[2];
  ZERO_CHECK(bytes == file_bytes(),
             "{}: has {} bytes, expected {} for the {} tokens of its header; it was {}: make it "
             "again with zero_prepare",
             path_, bytes, file_bytes(), count_, bytes < file_bytes() ? "truncated" : "extended");
}

void TokenFile::read_digest_file() {
  std::optional<TokenDigest> found = read_digest(digest_path(path_));
  if (!found) return;
  ZERO_CHECK(found->count == count_ && found->token_bytes == token_bytes_,
             "{}: is the digest of {} tokens of {} bytes, and the token file has {} of {}; make it "
             "again with zero_prepare --digest {}, or remove it",
             digest_path(path_), found->count, found->token_bytes, count_, token_bytes_, path_);
  digest_ = std::make_unique<const TokenDigest>(std::move(*found));
}

void TokenFile::read_file(std::int64_t begin, std::span<std::byte> bytes) const {
  advised("put the token file back as it was when the run opened it, and start again",
          [&] { file_->read(begin, bytes); });
}

void TokenFile::read_bytes(std::int64_t begin, std::span<std::byte> bytes) const {
  read_file(kTokenHeaderBytes + begin, bytes);
}

std::int64_t TokenFile::block_tokens() const {
  return (digest_ ? digest_->block : kContentBlock) / token_bytes_;
}

void TokenFile::check_block(std::int64_t block, std::span<const std::byte> bytes) const {
  const std::int64_t first = block * digest_->block / token_bytes_;
  ZERO_CHECK(block_hash(bytes) == digest_->blocks[static_cast<std::size_t>(block)],
             "{}: tokens {} to {} are not those of {}: the file was changed or damaged behind its "
             "digest; put it back as it was, or, if the change is meant, make the digest again "
             "with zero_prepare --digest {}",
             path_, first, first + static_cast<std::int64_t>(bytes.size()) / token_bytes_ - 1,
             digest_path(path_), path_);
}

void TokenFile::read(std::int64_t begin, std::span<std::uint32_t> tokens) const {
  ZERO_CHECK(begin >= 0 && static_cast<std::int64_t>(tokens.size()) <= count_ - begin,
             "{}: tokens {} to {} of {} were asked for", path_, begin,
             begin + static_cast<std::int64_t>(tokens.size()), count_);
  const std::int64_t per_block = block_tokens();
  std::vector<std::byte> bytes;
  while (!tokens.empty()) {
    // With a digest whole blocks are read, and what is checked is what is used.
    const std::int64_t block = begin / per_block;
    const std::int64_t from = digest_ ? block * per_block : begin;
    const std::int64_t end = std::min(count_, (block + 1) * per_block);
    const auto part = std::min(tokens.size(), static_cast<std::size_t>(end - begin));
    const std::int64_t last = digest_ ? end : begin + static_cast<std::int64_t>(part);
    bytes.resize(static_cast<std::size_t>((last - from) * token_bytes_));
    read_bytes(from * token_bytes_, bytes);
    if (digest_) check_block(block, bytes);
    widen(bytes.data() + (begin - from) * token_bytes_, token_bytes_, tokens.first(part));
    tokens = tokens.subspan(part);
    begin += static_cast<std::int64_t>(part);
  }
}

std::uint32_t TokenFile::at(std::int64_t index) const {
  std::uint32_t token = 0;
  read(index, std::span(&token, 1));
  return token;
}

std::int64_t TokenFile::find_outside(std::int64_t begin, std::int64_t end,
                                     std::int64_t vocabulary) const {
  if (token_bytes_ == 2 && vocabulary > std::numeric_limits<std::uint16_t>::max()) return -1;
  std::vector<std::uint32_t> tokens;
  for (std::int64_t at = begin; at < end; at += static_cast<std::int64_t>(tokens.size())) {
    tokens.resize(static_cast<std::size_t>(std::min(end - at, block_tokens())));
    read(at, tokens);
    const auto found =
        std::ranges::find_if(tokens, [=](std::uint32_t token) { return token >= vocabulary; });
    if (found != tokens.end()) return at + (found - tokens.begin());
  }
  return -1;
}

std::uint64_t TokenFile::fingerprint() const {
  constexpr std::int64_t kPart = 4096;
  const std::int64_t bytes = file_bytes();
  std::uint64_t hash = static_cast<std::uint64_t>(bytes);
  std::array<std::byte, kPart> part{};
  for (const std::int64_t begin :
       {std::int64_t{0}, bytes / 2, std::max<std::int64_t>(0, bytes - kPart)}) {
    const auto size = static_cast<std::size_t>(std::min(kPart, bytes - begin));
    read_file(begin, std::span(part).first(size));
    hash = XXH3_64bits_withSeed(part.data(), size, hash);
  }
  return hash;
}

TokenDigest digest_of(const TokenFile& file, const std::atomic<bool>& stopped) {
  constexpr std::int64_t kPart = std::int64_t{1} << 20;
  std::vector<std::byte> bytes;
  DigestBuilder builder;
  const std::int64_t size = file.count() * file.token_bytes();
  for (std::int64_t at = 0; at < size; at += kPart) {
    if (stopped) return {};
    bytes.resize(static_cast<std::size_t>(std::min(kPart, size - at)));
    file.read_bytes(at, bytes);
    builder.add(bytes);
  }
  return builder.finish(file.token_bytes());
}

TokenFileWriter::TokenFileWriter(std::string path, std::int64_t token_bytes,
                                 files::FileSystem& disk)
    : path_(std::move(path)),
      token_bytes_(token_bytes),
      disk_(disk),
      file_(path_ + ".tmp", disk),
      digest_file_(digest_path(path_) + ".tmp", disk) {
  const Header empty{};
  file_.write(std::as_bytes(std::span(empty)));
}

void TokenFileWriter::write(std::span<const std::uint32_t> tokens) {
  count_ += static_cast<std::int64_t>(tokens.size());
  const std::vector<std::uint16_t> narrow(token_bytes_ == 2 ? tokens.begin() : tokens.end(),
                                          tokens.end());
  const auto bytes = token_bytes_ == 2 ? std::as_bytes(std::span(narrow)) : std::as_bytes(tokens);
  file_.write(bytes);
  digest_.add(bytes);
}

void TokenFileWriter::finish() {
  ZERO_CHECK(count_ <= std::numeric_limits<std::int32_t>::max(),
             "{}: {} tokens do not fit the header's count; make shards smaller with --shard-tokens",
             path_, count_);
  Header header{};
  header[0] = kTokenMagic;
  header[1] = token_bytes_ == 2 ? 1 : 2;
  header[2] = static_cast<std::int32_t>(count_);
  file_.rewind();
  file_.write(std::as_bytes(std::span(header)));
  file_.finish();
  TokenDigest digest = digest_.finish(token_bytes_);
  digest.tokenizer = tokenizer_;
  const std::string bytes = digest_bytes(digest);
  digest_file_.write(std::as_bytes(std::span(bytes)));
  digest_file_.finish();
}

void TokenFileWriter::commit() {
  // The file that is replaced must not be left under the digest of another.
  disk_.remove_file(digest_path(path_));
  file_.rename(path_);
  digest_file_.rename(digest_path(path_));
}

TokenStream::TokenStream(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    files_.emplace_back(path);
    begins_.push_back(count_);
    count_ += files_.back().count();
  }
}

std::int64_t TokenStream::sequences(std::int64_t length) const {
  return count_ == 0 ? 0 : (count_ - 1) / length;
}

TokenStream::Place TokenStream::place_of(std::int64_t position) const {
  const std::size_t file = file_of(position);
  return {files_[file], position - begins_[file]};
}

std::size_t TokenStream::file_of(std::int64_t position) const {
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), position);
  return static_cast<std::size_t>(next - begins_.begin()) - 1;
}

void TokenStream::sequence(std::int64_t q, std::int64_t vocabulary, std::span<std::int32_t> inputs,
                           std::span<std::int32_t> targets) const {
  const auto length = static_cast<std::int64_t>(inputs.size());
  ZERO_CHECK(q >= 0 && q < sequences(length), "sequence {} of {} was asked for", q,
             sequences(length));
  const std::int64_t begin = q * length;
  std::vector<std::uint32_t> tokens(inputs.size() + 1);
  std::span<std::uint32_t> left(tokens);
  std::int64_t position = begin - begins_[file_of(begin)];
  for (std::size_t file = file_of(begin); !left.empty(); ++file, position = 0) {
    const auto there = static_cast<std::size_t>(files_[file].count() - position);
    const std::span<std::uint32_t> part = left.first(std::min(left.size(), there));
    files_[file].read(position, part);
    const auto outside =
        std::ranges::find_if(part, [=](std::uint32_t token) { return token >= vocabulary; });
    if (outside != part.end()) {
      fail_outside(files_[file], position + (outside - part.begin()), vocabulary);
    }
    left = left.subspan(part.size());
  }
  std::copy(tokens.begin(), tokens.end() - 1, inputs.begin());
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
}

void TokenStream::check_tokens(std::int64_t begin, std::int64_t end,
                               std::int64_t vocabulary) const {
  for (std::size_t f = 0; f < files_.size(); ++f) {
    const std::int64_t first = std::max<std::int64_t>(begin - begins_[f], 0);
    const std::int64_t last = std::min(end - begins_[f], files_[f].count());
    const std::int64_t position = files_[f].find_outside(first, last, vocabulary);
    if (position >= 0) fail_outside(files_[f], position, vocabulary);
  }
}

}  // namespace zero
