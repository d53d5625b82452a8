// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/token_digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked_math.h"
#include "base/error.h"
#include "files/file_system.h"
#include "launch/data/new_file.h"
#include "text/tokenizer.h"
#include "weights/text_file.h"

namespace zero {
namespace {

using Head = std::array<std::int64_t, 4>;                  // magic, token_bytes, count, block
using Sum = std::array<std::uint64_t, 2>;                  // low, high
constexpr std::int64_t kMagic = 0x3274736567694454;        // "TDigest2"
constexpr std::int64_t kNamingMagic = 0x3374736567694454;  // "TDigest3": with a TokenizerMark
constexpr std::int64_t kFirstMagic = 0x3174736567694454;   // "TDigest1": blocks of kContentBlock

Sum sum_of_bytes(const std::string& bytes) {
  const XXH128_hash_t sum = XXH3_128bits(bytes.data(), bytes.size());
  return {sum.low64, sum.high64};
}

template <typename Words>
void append(std::string& bytes, const Words& words) {
  bytes.append(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(words[0]));
}

/// The digest file of the first version, but for its sum.
std::string first_version(const TokenDigest& digest, const std::vector<std::uint64_t>& blocks) {
  std::string bytes;
  append(bytes, Head{kFirstMagic, digest.token_bytes, digest.count, kContentBlock});
  append(bytes, blocks);
  return bytes;
}

/// All of a digest's file but its sum.
std::string summed_bytes(const TokenDigest& digest) {
  if (digest.block == kContentBlock) return first_version(digest, digest.blocks);
  std::string bytes;
  const std::int64_t magic = digest.tokenizer ? kNamingMagic : kMagic;
  append(bytes, Head{magic, digest.token_bytes, digest.count, digest.block});
  if (digest.tokenizer) {
    append(bytes,
           Sum{digest.tokenizer->hash, static_cast<std::uint64_t>(digest.tokenizer->vocabulary)});
  }
  append(bytes, digest.content);
  append(bytes, digest.blocks);
  return bytes;
}

/// The digest in the bytes of a file; nothing if they are no whole one.
std::optional<TokenDigest> parsed(const std::string& bytes) {
  Head head{};
  if (bytes.size() < sizeof(head)) return std::nullopt;
  std::memcpy(head.data(), bytes.data(), sizeof(head));
  TokenDigest digest{.token_bytes = head[1], .count = head[2], .block = head[3], .blocks = {}};
  const bool first = head[0] == kFirstMagic && digest.block == kContentBlock;
  const bool naming = head[0] == kNamingMagic;
  const bool known = first || ((naming || head[0] == kMagic) && digest.block == kDigestBlock);
  const bool sizes = known && (digest.token_bytes == 2 || digest.token_bytes == 4) &&
                     digest.count >= 0 && digest.count <= std::int64_t{1} << 32;
  if (!sizes) return std::nullopt;
  const std::int64_t token_bytes = digest.count * digest.token_bytes;
  const auto hashes = static_cast<std::size_t>(div_ceil(token_bytes, digest.block));
  const std::size_t content = sizeof(head) + (naming ? sizeof(Sum) : 0);
  const std::size_t begin = content + (first ? 0 : sizeof(Sum));
  const std::size_t end = begin + hashes * sizeof(std::uint64_t);
  if (bytes.size() != end + sizeof(Sum)) return std::nullopt;
  digest.blocks.resize(hashes);
  std::copy_n(bytes.data() + begin, end - begin, reinterpret_cast<char*>(digest.blocks.data()));
  Sum sum{};
  std::memcpy(sum.data(), bytes.data() + end, sizeof(sum));
  if (first) {
    digest.content = sum;
  } else {
    std::memcpy(digest.content.data(), bytes.data() + content, sizeof(Sum));
  }
  if (naming) {
    Sum mark{};
    std::memcpy(mark.data(), bytes.data() + sizeof(head), sizeof(mark));
    digest.tokenizer = {mark[0], static_cast<std::int64_t>(mark[1])};
  }
  if (sum_of_bytes(bytes.substr(0, end)) != sum) return std::nullopt;
  return digest;
}

}  // namespace

TokenizerMark mark_of(const Tokenizer& tokenizer) {
  std::string meanings;
  for (std::int64_t id = 0; id < tokenizer.vocabulary(); ++id) {
    const std::string_view piece = tokenizer.piece(static_cast<std::uint32_t>(id));
    meanings += fmt::format("{} {}", piece.size(), piece);
  }
  for (const auto& [name, id] : tokenizer.special_tokens()) {
    meanings += fmt::format("{} {} {}", name.size(), name, id);
  }
  return {.hash = XXH3_64bits(meanings.data(), meanings.size()),
          .vocabulary = tokenizer.vocabulary()};
}

std::string TokenDigest::text() const {
  return fmt::format("{:016x}{:016x}", content[1], content[0]);
}

std::uint64_t block_hash(std::span<const std::byte> block) {
  return XXH3_64bits(block.data(), block.size());
}

void BlockHashes::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (begun_.empty() && bytes.size() >= block_) {  // a whole block needs no copy
      hashes_.push_back(block_hash(bytes.first(block_)));
      bytes = bytes.subspan(block_);
      continue;
    }
    const std::size_t part = std::min(bytes.size(), block_ - begun_.size());
    begun_.insert(begun_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(part));
    bytes = bytes.subspan(part);
    if (begun_.size() < block_) return;
    hashes_.push_back(block_hash(begun_));
    begun_.clear();
  }
}

std::vector<std::uint64_t> BlockHashes::finish() {
  if (!begun_.empty()) hashes_.push_back(block_hash(begun_));
  begun_.clear();
  return std::move(hashes_);
}

void DigestBuilder::add(std::span<const std::byte> tokens) {
  bytes_ += static_cast<std::int64_t>(tokens.size());
  checked_.add(tokens);
  content_.add(tokens);
}

TokenDigest DigestBuilder::finish(std::int64_t token_bytes) {
  TokenDigest digest{
      .token_bytes = token_bytes, .count = bytes_ / token_bytes, .blocks = checked_.finish()};
  digest.content = sum_of_bytes(first_version(digest, content_.finish()));
  return digest;
}

std::string digest_path(const std::string& path) { return path + ".digest"; }

std::string digest_bytes(const TokenDigest& digest) {
  std::string bytes = summed_bytes(digest);
  append(bytes, sum_of_bytes(bytes));
  return bytes;
}

std::optional<TokenDigest> read_digest(const std::string& path) {
  if (files::disk().kind_of(path) == files::PathKind::missing) return std::nullopt;
  const std::string bytes = advised("give the digest the token file's permissions, or remove it",
                                    [&] { return whole_file(*files::disk().open_read(path)); });
  if (std::optional<TokenDigest> digest = parsed(bytes)) return digest;
  fail(
      "{}: is no whole digest of a token file ({} bytes); make it again with zero_prepare "
      "--digest, or remove it",
      path, bytes.size());
}

void write_digest(const std::string& path, const TokenDigest& digest) {
  NewFile file(path + ".tmp");
  const std::string bytes = digest_bytes(digest);
  file.write(std::as_bytes(std::span(bytes)));
  file.finish();
  file.rename(path);
}

}  // namespace zero
