// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/token_digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "launch/data/new_file.h"

namespace zero {
namespace {

using Head = std::array<std::int64_t, 4>;            // magic, token_bytes, count, kDigestBlock
constexpr std::int64_t kMagic = 0x3174736567694454;  // "TDigest1"
constexpr std::size_t kSumBytes = 16;

/// All of a digest's file but its sum.
std::string summed_bytes(const TokenDigest& digest) {
  const Head head{kMagic, digest.token_bytes, digest.count, kDigestBlock};
  std::string bytes(reinterpret_cast<const char*>(head.data()), sizeof(head));
  bytes.append(reinterpret_cast<const char*>(digest.blocks.data()),
               digest.blocks.size() * sizeof(std::uint64_t));
  return bytes;
}

XXH128_hash_t sum_of(const TokenDigest& digest) {
  const std::string bytes = summed_bytes(digest);
  return XXH3_128bits(bytes.data(), bytes.size());
}

std::int64_t blocks_of(std::int64_t bytes) { return (bytes + kDigestBlock - 1) / kDigestBlock; }

}  // namespace

std::string TokenDigest::text() const {
  const XXH128_hash_t sum = sum_of(*this);
  return fmt::format("{:016x}{:016x}", sum.high64, sum.low64);
}

std::uint64_t block_hash(std::span<const std::byte> block) {
  return XXH3_64bits(block.data(), block.size());
}

void DigestBuilder::add(std::span<const std::byte> tokens) {
  bytes_ += static_cast<std::int64_t>(tokens.size());
  while (!tokens.empty()) {
    if (begun_.empty() && tokens.size() >= kDigestBlock) {  // a whole block needs no copy
      blocks_.push_back(block_hash(tokens.first(kDigestBlock)));
      tokens = tokens.subspan(kDigestBlock);
      continue;
    }
    const std::size_t part = std::min(tokens.size(), kDigestBlock - begun_.size());
    begun_.insert(begun_.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(part));
    tokens = tokens.subspan(part);
    if (begun_.size() < kDigestBlock) return;
    blocks_.push_back(block_hash(begun_));
    begun_.clear();
  }
}

TokenDigest DigestBuilder::finish(std::int64_t token_bytes) {
  if (!begun_.empty()) blocks_.push_back(block_hash(begun_));
  begun_.clear();
  return {.token_bytes = token_bytes, .count = bytes_ / token_bytes, .blocks = std::move(blocks_)};
}

std::string digest_path(const std::string& path) { return path + ".digest"; }

std::string digest_bytes(const TokenDigest& digest) {
  std::string bytes = summed_bytes(digest);
  const XXH128_hash_t sum = XXH3_128bits(bytes.data(), bytes.size());
  return bytes.append(reinterpret_cast<const char*>(&sum), kSumBytes);
}

std::optional<TokenDigest> read_digest(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  if (!file && !std::filesystem::exists(path, error)) return std::nullopt;
  ZERO_CHECK(file && std::filesystem::is_regular_file(path, error),
             "{}: cannot read the digest: {}; give it the token file's permissions, or remove it",
             path, file ? "it is no file" : std::strerror(errno));
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  Head head{};
  const bool whole = bytes.size() >= sizeof(head) + kSumBytes;
  if (whole) std::memcpy(head.data(), bytes.data(), sizeof(head));
  TokenDigest digest{.token_bytes = head[1], .count = head[2], .blocks = {}};
  const bool sizes = whole && head[0] == kMagic && head[3] == kDigestBlock &&
                     (digest.token_bytes == 2 || digest.token_bytes == 4) && digest.count >= 0 &&
                     digest.count <= std::int64_t{1} << 32;
  const auto hashes =
      sizes ? static_cast<std::size_t>(blocks_of(digest.count * digest.token_bytes)) : 0;
  if (sizes && bytes.size() == sizeof(head) + hashes * sizeof(std::uint64_t) + kSumBytes) {
    digest.blocks.resize(hashes);
    std::copy_n(bytes.data() + sizeof(head), hashes * sizeof(std::uint64_t),
                reinterpret_cast<char*>(digest.blocks.data()));
    const XXH128_hash_t sum = sum_of(digest);
    if (std::memcmp(bytes.data() + bytes.size() - kSumBytes, &sum, kSumBytes) == 0) return digest;
  }
  fail(
      "{}: is no whole digest of a token file ({} bytes); make it again with zero_prepare "
      "--digest, "
      "or remove it",
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
