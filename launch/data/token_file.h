// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

namespace zero {

/// Token files in llm.c's formats: a header of 256 int32 (magic, version, token count, zeros), then
/// the tokens, little-endian. Version 1 of kTokenMagic has uint16 tokens; version 2, an extension
/// of ours, uint32 tokens for vocabularies above 65536; version 7 of kLlama3Magic uint32 tokens
/// too.
inline constexpr std::int32_t kTokenMagic = 20240520;
inline constexpr std::int32_t kLlama3Magic = 20240801;
inline constexpr std::int64_t kTokenHeaderBytes = 256 * 4;

/// One token file, mapped read-only. Movable.
class TokenFile {
 public:
  /// Throws zero::Error naming the file, the value found and the one expected if the file is
  /// missing, truncated, or no token file.
  explicit TokenFile(const std::string& path);

  const std::string& path() const { return path_; }
  std::int64_t count() const { return count_; }
  std::int64_t token_bytes() const { return token_bytes_; }
  std::int64_t file_bytes() const { return kTokenHeaderBytes + count_ * token_bytes_; }
  /// Token `index`, 0 <= index < count().
  std::uint32_t at(std::int64_t index) const {
    return token_bytes_ == 2 ? static_cast<const std::uint16_t*>(tokens_)[index]
                             : static_cast<const std::uint32_t*>(tokens_)[index];
  }
  /// The position of the first token in [begin, end) that is `vocabulary` or more; -1 if none.
  std::int64_t find_outside(std::int64_t begin, std::int64_t end, std::int64_t vocabulary) const;
  /// A hash of the header and of tokens at the start, middle and end: enough to identify a file
  /// without reading it whole.
  std::uint64_t fingerprint() const;

 private:
  void check_header(std::int64_t bytes);

  std::string path_;
  std::shared_ptr<const void> map_;
  const void* tokens_ = nullptr;
  std::int64_t count_ = 0;
  std::int64_t token_bytes_ = 2;
};

/// Writes one token file under a temporary name; commit() renames it. Without commit() no file
/// remains.
class TokenFileWriter {
 public:
  TokenFileWriter(std::string path, std::int64_t token_bytes);
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;
  ~TokenFileWriter();

  void write(std::span<const std::uint32_t> tokens);
  std::int64_t count() const { return count_; }
  const std::string& path() const { return path_; }
  /// Completes the header and the file, still under the temporary name; call before commit().
  void finish();
  void commit();

 private:
  void put(const void* data, std::size_t bytes);

  std::string path_;
  std::string temporary_;
  std::int64_t token_bytes_;
  std::int64_t count_ = 0;
  std::FILE* file_ = nullptr;
  bool committed_ = false;
};

}  // namespace zero
