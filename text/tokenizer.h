// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// A part of a prompt.
struct PromptPiece {
  std::string text;
  /// Special tokens written in the piece, as "<|im_end|>", become their ids. A user's words must
  /// not be able to write them, nor others that steer a chat.
  bool from_template = false;
};

/// Some bytes of a text.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Where added tokens may act in a text.
struct TokenPlaces {
  /// Special tokens act within one of these alone; in order and apart.
  std::span<const ByteRange> ranges{};
  /// AddedToken::guarded ones too: the rest of the text is what messages of a chat contain.
  bool guards = false;
};

struct EncodeOptions {
  /// Puts the tokens before the text that the tokenizer's files ask for, as <s>: for a whole
  /// prompt. A text of which a chat template wrote the beginning has them already.
  bool begin_of_text = false;
};

/// What a tokenizer knows of its tokens.
struct TokenTable {
  using Ids = std::map<std::string, std::uint32_t, std::less<>>;
  std::vector<std::string> pieces{};  ///< by id: the bytes that the token adds to a text
  Ids special{};                      ///< ids of special tokens, whose pieces are empty
  std::vector<std::uint32_t> begin_of_text{};
  std::int64_t end_of_document = -1;
  bool drops_first_space = false;
  /// Bytes of a text that become one token, at most; 0: any number.
  std::size_t most_bytes_of_token = 0;
  bool drops_spaces = false;  ///< white space may become no token
};

/// Converts text to token ids and back. May be used by several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Number of ids, those of special tokens included.
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(table_.pieces.size()); }
  /// Except with "bytes", invalid UTF-8 is read as U+FFFD: base/utf8.h finds it before.
  std::vector<std::uint32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// The pieces as one text: words may lie across pieces. Tokens that are special, whatever their
  /// mark (text/added_tokens.h: guarded), act within pieces of the template alone, and
  /// not across a content, be it without a byte.
  std::vector<std::uint32_t> encode_pieces(std::span<const PromptPiece> pieces) const;
  /// The bytes of the tokens' pieces, which may end in the middle of a character.
  std::string decode(std::span<const std::uint32_t> tokens) const;

  /// The bytes that token `id` adds to a text: none for special tokens and outside the vocabulary.
  std::string_view piece(std::uint32_t id) const;
  /// The id of the special token that is written `name`, as "<|eot_id|>".
  std::optional<std::uint32_t> special_token(std::string_view name) const;
  /// Their names and ids.
  const TokenTable::Ids& special_tokens() const { return table_.special; }
  /// Names of special tokens that are written in `text`.
  std::vector<std::string> special_in(std::string_view text) const;
  /// Whether a text begins without the space of its first piece, as SentencePiece's do.
  bool drops_first_space() const { return table_.drops_first_space; }
  /// Bytes of a text that become one token, at most; 0: any number.
  std::size_t most_bytes_of_token() const { return table_.most_bytes_of_token; }
  /// Bytes of `text`, which is UTF-8, without those that may become no token.
  std::size_t bytes_of_tokens(std::string_view text) const;
  /// The end-of-document id, or -1 if there is none.
  std::int64_t end_of_document() const { return table_.end_of_document; }

 protected:
  explicit Tokenizer(TokenTable table) : table_(std::move(table)) {}
  const TokenTable& table() const { return table_; }

 private:
  /// Appends the ids of `text`, which is not empty, and UTF-8 if `places` has ranges.
  virtual void do_encode(std::string_view text, const TokenPlaces& places,
                         std::vector<std::uint32_t>& ids) const = 0;

  TokenTable table_;
};

/// "bytes": one token per byte, vocabulary 256. Any other name: a tokenizer.json (a file, or that
/// in a folder; docs: text/bpe_tokenizer.h) or a SentencePiece model (a file, or
/// tokenizer.model in a folder whose tokenizer.json is missing or not computed).
/// tokenizer_config.json beside the file says which tokens begin and end a text, and that or
/// added_tokens.json which are added. Throws zero::Error naming the file if it cannot be read, or
/// asks for what is not computed.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

}  // namespace zero
