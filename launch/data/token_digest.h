// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace zero {

class Tokenizer;

/// Token bytes under one hash: what is read and checked where one token of them is used. Digests
/// of earlier versions have blocks of kContentBlock.
inline constexpr std::int64_t kDigestBlock = std::int64_t{16} << 10;
/// Token bytes under one hash of TokenDigest::content.
inline constexpr std::int64_t kContentBlock = std::int64_t{64} << 10;

/// What tells the tokenizer of a file's tokens from others.
struct TokenizerMark {
  std::uint64_t hash = 0;       ///< of what each id means
  std::int64_t vocabulary = 0;  ///< number of ids

  bool operator==(const TokenizerMark&) const = default;
};
/// The hash is of all ids' pieces and special tokens: files of different forms have one mark if
/// each id means the same in them.
TokenizerMark mark_of(const Tokenizer& tokenizer);

/// The hashes of all tokens of a file, XXH3 with 64 bits a block.
struct TokenDigest {
  std::int64_t token_bytes = 2;
  std::int64_t count = 0;  ///< of tokens
  std::int64_t block = kDigestBlock;
  std::vector<std::uint64_t> blocks;  ///< of `block` bytes of tokens each; the last is shorter
  /// 128 bits over width, count and the hashes of blocks of kContentBlock: the same whatever
  /// `block` is.
  std::array<std::uint64_t, 2> content{};
  std::optional<TokenizerMark> tokenizer{};  ///< of files that zero_prepare made of texts

  bool operator==(const TokenDigest&) const = default;
  /// 32 hexadecimal digits of `content`, the same for files of the same tokens alone.
  std::string text() const;
};

/// The hash of a block.
std::uint64_t block_hash(std::span<const std::byte> block);

/// The hashes of the blocks of bytes that come in parts of any size.
class BlockHashes {
 public:
  explicit BlockHashes(std::int64_t block) : block_(static_cast<std::size_t>(block)) {}
  void add(std::span<const std::byte> bytes);
  /// Those of all that was added.
  std::vector<std::uint64_t> finish();

 private:
  std::size_t block_;
  std::vector<std::byte> begun_;  // bytes of a block that is not full
  std::vector<std::uint64_t> hashes_;
};

/// Makes a digest of tokens that come in parts of any size.
class DigestBuilder {
 public:
  void add(std::span<const std::byte> tokens);
  /// The digest of all that was added, whole tokens of `token_bytes`.
  TokenDigest finish(std::int64_t token_bytes);

 private:
  BlockHashes checked_{kDigestBlock};
  BlockHashes content_{kContentBlock};
  std::int64_t bytes_ = 0;
};

/// The file beside the token file `path` that holds its digest: magic, width, count and size of a
/// block as 64-bit integers, hash and vocabulary of the tokenizer if its magic says so, `content`,
/// the blocks' hashes, and 16 bytes over them. With blocks of kContentBlock, as earlier versions
/// wrote it, the last are `content`.
std::string digest_path(const std::string& path);
std::string digest_bytes(const TokenDigest& digest);
/// Reads such a file; nothing if there is none. Throws zero::Error naming the file if it is
/// damaged.
std::optional<TokenDigest> read_digest(const std::string& path);
/// Writes it, under a temporary name first.
void write_digest(const std::string& path, const TokenDigest& digest);

}  // namespace zero
