// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace zero {

/// Token bytes under one hash: what is checked where one token of them is read.
inline constexpr std::int64_t kDigestBlock = std::int64_t{64} << 10;

/// The hashes of all tokens of a file, block by block: XXH3 with 64 bits a block, 128 bits over
/// width, count and blocks.
struct TokenDigest {
  std::int64_t token_bytes = 2;
  std::int64_t count = 0;             ///< of tokens
  std::vector<std::uint64_t> blocks;  ///< of kDigestBlock bytes of tokens each; the last is shorter

  bool operator==(const TokenDigest&) const = default;
  /// 32 hexadecimal digits, the same for files of the same tokens alone.
  std::string text() const;
};

/// The hash of a block.
std::uint64_t block_hash(std::span<const std::byte> block);

/// Makes a digest of tokens that come in parts of any size.
class DigestBuilder {
 public:
  void add(std::span<const std::byte> tokens);
  /// The digest of all that was added, whole tokens of `token_bytes`.
  TokenDigest finish(std::int64_t token_bytes);

 private:
  std::vector<std::byte> begun_;  // bytes of a block that is not full
  std::vector<std::uint64_t> blocks_;
  std::int64_t bytes_ = 0;
};

/// The file beside the token file `path` that holds its digest: magic, width, count and size of a
/// block as 64-bit integers, the blocks' hashes, and the 16 bytes of text().
std::string digest_path(const std::string& path);
std::string digest_bytes(const TokenDigest& digest);
/// Reads such a file; nothing if there is none. Throws zero::Error naming the file if it is
/// damaged.
std::optional<TokenDigest> read_digest(const std::string& path);
/// Writes it, under a temporary name first.
void write_digest(const std::string& path, const TokenDigest& digest);

}  // namespace zero
