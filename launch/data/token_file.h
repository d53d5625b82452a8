// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "files/file_system.h"
#include "launch/data/new_file.h"
#include "launch/data/token_digest.h"

namespace zero {

/// Token files in llm.c's formats: a header of 256 int32 (magic, version, token count, zeros), then
/// the tokens, little-endian. Version 1 of kTokenMagic has uint16 tokens; version 2, an extension
/// of ours, uint32 tokens for vocabularies above 65536; version 7 of kLlama3Magic uint32 tokens
/// too.
inline constexpr std::int32_t kTokenMagic = 20240520;
inline constexpr std::int32_t kLlama3Magic = 20240801;
/// Of llm.c's files of questions, which are no stream of tokens.
inline constexpr std::int32_t kEvaluationMagic = 20240522;
inline constexpr std::int64_t kTokenHeaderBytes = 256 * 4;

/// One token file, open for reading. Bytes that are read are compared with the digest beside the
/// file, if there is one. Movable; any thread may read.
class TokenFile {
 public:
  /// What the digest beside the file is for.
  enum class Digest : std::uint8_t { checked, ignored };
  /// Throws zero::Error naming the file, the value found and the one expected if the file is
  /// missing, truncated, or no token file, or its digest is one of another file.
  explicit TokenFile(const std::string& path, Digest digest = Digest::checked);

  const std::string& path() const { return path_; }
  std::int64_t count() const { return count_; }
  std::int64_t token_bytes() const { return token_bytes_; }
  std::int64_t file_bytes() const { return kTokenHeaderBytes + count_ * token_bytes_; }
  /// Equal for two objects, of any process, only if they have opened one file of one host, which
  /// was not changed between.
  const std::string& identity() const { return identity_; }
  /// The digest file's content; null: there is none.
  const TokenDigest* digest() const { return digest_.get(); }
  /// The tokens from `begin` on. Throws zero::Error naming the file if it was cut, cannot be read,
  /// or holds other tokens than its digest says.
  void read(std::int64_t begin, std::span<std::uint32_t> tokens) const;
  /// Token `index`, 0 <= index < count().
  std::uint32_t at(std::int64_t index) const;
  /// The bytes from byte `begin` of the tokens on, as read() would read them without a digest.
  void read_bytes(std::int64_t begin, std::span<std::byte> bytes) const;
  /// The position of the first token in [begin, end) that is `vocabulary` or more; -1 if none.
  std::int64_t find_outside(std::int64_t begin, std::int64_t end, std::int64_t vocabulary) const;
  /// A hash of the size and of bytes at the start, middle and end: tells files apart at once, and
  /// overlooks changes between them, which the digest finds.
  std::uint64_t fingerprint() const;

 private:
  void read_header(std::int64_t bytes);
  void read_digest_file();
  /// Tokens of the file that are read at once.
  std::int64_t block_tokens() const;
  void check_block(std::int64_t block, std::span<const std::byte> bytes) const;
  /// The bytes from byte `begin` of the file on.
  void read_file(std::int64_t begin, std::span<std::byte> bytes) const;

  std::string path_;
  std::unique_ptr<files::InputFile> file_;
  std::string identity_;
  std::int64_t count_ = 0;
  std::int64_t token_bytes_ = 2;
  std::unique_ptr<const TokenDigest> digest_;
};

/// The digest of all tokens of `file`, read from its begin to its end unless `stopped` becomes
/// true: then an empty one.
TokenDigest digest_of(const TokenFile& file, const std::atomic<bool>& stopped);

/// Writes one token file and its digest under temporary names; commit() renames them. Without
/// commit() no file remains.
class TokenFileWriter {
 public:
  TokenFileWriter(std::string path, std::int64_t token_bytes,
                  files::FileSystem& disk = files::disk());

  void write(std::span<const std::uint32_t> tokens);
  std::int64_t count() const { return count_; }
  const std::string& path() const { return path_; }
  /// Has the digest name the tokenizer; call before finish().
  void name_tokenizer(const TokenizerMark& tokenizer) { tokenizer_ = tokenizer; }
  /// Completes the header and the files, still under the temporary names; call before commit().
  void finish();
  void commit();

 private:
  std::string path_;
  std::int64_t token_bytes_;
  files::FileSystem& disk_;
  std::int64_t count_ = 0;
  NewFile file_;
  NewFile digest_file_;
  DigestBuilder digest_;
  std::optional<TokenizerMark> tokenizer_;
};

/// Shards, in name order, as one stream of tokens. Read-only.
class TokenStream {
 public:
  explicit TokenStream(const std::vector<std::string>& paths);

  std::int64_t count() const { return count_; }
  const std::vector<TokenFile>& files() const { return files_; }
  struct Place {
    const TokenFile& file;
    std::int64_t token;  ///< of the file
  };
  /// Where a token of the stream is.
  Place place_of(std::int64_t position) const;
  /// Whole sequences of `length` inputs and their targets: (tokens - 1) / length.
  std::int64_t sequences(std::int64_t length) const;
  /// Sequence `q`: inputs are tokens [q * T, q * T + T), T = inputs.size() = targets.size();
  /// targets are the same range shifted by one token. Throws zero::Error naming file, position and
  /// id if a token id is `vocabulary` or more.
  void sequence(std::int64_t q, std::int64_t vocabulary, std::span<std::int32_t> inputs,
                std::span<std::int32_t> targets) const;
  /// Throws like sequence() if one of the tokens [begin, end) of the stream is too large.
  void check_tokens(std::int64_t begin, std::int64_t end, std::int64_t vocabulary) const;

 private:
  std::size_t file_of(std::int64_t position) const;

  std::vector<TokenFile> files_;
  std::vector<std::int64_t> begins_;  // of each file, in the stream
  std::int64_t count_ = 0;
};

}  // namespace zero
