// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "base/utf8.h"
#include "files/disk_calls.h"
#include "text/sentencepiece_model.h"
#include "text/special_names.h"
#include "text/unicode.h"
#include "weights/model_files.h"

namespace zero {
namespace {

using sentencepiece::SentencePieceProcessor;

/// Fields after the end of a serialized model replace those in it: this is
/// normalizer_spec.add_dummy_prefix = false.
constexpr std::string_view kWithoutPrefix("\x1a\x02\x18\x00", 4);

std::unique_ptr<SentencePieceProcessor> load(const std::string& path, const std::string& model) {
  auto processor = std::make_unique<SentencePieceProcessor>();
  const std::string refusal = [&]() -> std::string {
    try {
      const auto status = processor->LoadFromSerializedProto(model);
      return status.ok() ? "" : status.ToString();
    } catch (const std::exception& error) {  // of the library's tries
      return error.what();
    }
  }();
  ZERO_CHECK(
      refusal.empty(),
      "{}: is not a SentencePiece model: {}; give \"bytes\", a .model file, a tokenizer.json or "
      "a folder with one of them",
      path, printable_line(refusal));
  return processor;
}

std::string piece_text(const SentencePieceProcessor& processor, int id) {
  const std::string& name = processor.IdToPiece(id);
  if (processor.IsControl(id)) return "";
  if (processor.IsByte(id)) return {static_cast<char>(std::stoi(name.substr(3, 2), nullptr, 16))};
  if (processor.IsUnknown(id))
    return " \u2047 ";  // SentencePiece's own, unless a model has another
  return replaced(name, kSpaceSymbol, " ");
}

/// Whether the model puts a space before a text, and takes it away again.
bool has_prefix(const SentencePieceProcessor& processor) {
  std::vector<std::string> pieces;
  const auto status = processor.Encode("a", &pieces);
  return status.ok() && !pieces.empty() && pieces[0].starts_with(kSpaceSymbol);
}

/// The model's pieces that the library finds or writes as they are, and the tokens `added`.
ListedTokens listed(const SentencePieceProcessor& processor, const SentencePieceModel& model,
                    const std::vector<AddedToken>& added) {
  ListedTokens all{
      .id =
          [&](const std::string& content) {
            const int id = processor.PieceToId(content);
            return processor.IsUnknown(id) ? std::nullopt
                                           : std::optional(static_cast<std::uint32_t>(id));
          },
      .taken = std::vector<bool>(static_cast<std::size_t>(processor.GetPieceSize()), true)};
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    if (processor.IsControl(id) || processor.IsUnknown(id)) {
      all.found.insert(processor.IdToPiece(id));
    }
  }
  all.found.insert(model.user_defined.begin(), model.user_defined.end());
  for (const AddedToken& token : added) {
    all.found.insert(token.content);
    if (token.id >= all.taken.size()) all.taken.resize(token.id + 1);
    all.taken[token.id] = true;
  }
  return all;
}

/// The tokens that `config` adds; those that control the model are special, also if the file does
/// not say so.
std::vector<AddedToken> added_tokens_of(const SentencePieceProcessor& processor,
                                        const SentencePieceModel& model,
                                        const TokenizerConfig& config) {
  std::vector<AddedToken> tokens = config.added_tokens;
  for (AddedToken& token : tokens) {
    const auto id = static_cast<int>(token.id);
    const bool known = id < processor.GetPieceSize();
    token.special |= known && (processor.IsControl(id) || processor.IsUnknown(id));
  }
  for (AddedToken& token : number_unlisted(config.special, listed(processor, model, tokens))) {
    tokens.push_back(std::move(token));
  }
  return tokens;
}

/// Bytes of a text that become one token, at most. Characters that are no piece become one
/// together, but with byte_fallback.
std::size_t most_bytes_of_token(const SentencePieceProcessor& processor,
                                const SentencePieceModel& model,
                                const std::vector<AddedToken>& added) {
  bool falls_back = false;
  for (int id = 0; id < processor.GetPieceSize() && !falls_back; ++id) {
    falls_back = processor.IsByte(id);
  }
  if (!falls_back || model.maps_characters) return 0;
  std::size_t most = model.longest_piece;
  for (const AddedToken& token : added) most = std::max(most, token.content.size());
  return most;
}

TokenTable table_of(const SentencePieceProcessor& processor, const SentencePieceModel& model,
                    std::vector<AddedToken>& added, const TokenizerConfig& config) {
  TokenTable table;
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    table.pieces.push_back(piece_text(processor, id));
    if (processor.IsControl(id)) {
      table.special.emplace(processor.IdToPiece(id), static_cast<std::uint32_t>(id));
    }
  }
  table.drops_spaces = model.drops_spaces;
  for (AddedToken& token : added) add_token(config, token, table);
  if (processor.bos_id() >= 0)
    table.begin_of_text = {static_cast<std::uint32_t>(processor.bos_id())};
  table.end_of_document = processor.eos_id();
  table.drops_first_space = has_prefix(processor);
  table.most_bytes_of_token = most_bytes_of_token(processor, model, added);
  apply_config(config, table);
  return table;
}

/// The pieces that the library finds in any text; guarded: those that may steer any chat.
std::vector<AddedToken> user_defined_pieces(const SentencePieceProcessor& processor,
                                            const SentencePieceModel& model,
                                            const TokenizerConfig& config) {
  std::vector<AddedToken> pieces;
  for (const std::string& name : model.user_defined) {
    pieces.push_back({.content = replaced(name, kSpaceSymbol, " "),
                      .id = static_cast<std::uint32_t>(processor.PieceToId(name))});
  }
  guard_tokens(pieces, config.chat_template.text, config.special.contents());
  return pieces;
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// `without_prefix` encodes what follows an added token; null: as the text's beginning.
  SentencePieceTokenizer(TokenTable table, std::unique_ptr<SentencePieceProcessor> processor,
                         std::unique_ptr<SentencePieceProcessor> without_prefix, AddedTokens added,
                         std::vector<AddedToken> user_defined)
      : Tokenizer(std::move(table)),
        processor_(std::move(processor)),
        without_prefix_(std::move(without_prefix)),
        added_(std::move(added)),
        user_defined_(user_defined, "the model's pieces") {
    for (const AddedToken& piece : user_defined) {
      if (piece.guarded) steering_.insert(piece.id);
    }
  }

 private:
  void do_encode(std::string_view raw, const TokenPlaces& places,
                 std::vector<std::uint32_t>& ids) const override {
    const std::string text = replace_invalid_utf8(raw);
    std::set<std::uint32_t> written;
    std::set<std::uint32_t> steering = steering_;
    if (places.guards) {
      for (const ByteRange& range : places.ranges) {
        const std::string_view part = text_of(text, range);
        added_.add_contained(part, written);
        user_defined_.add_contained(part, steering);
      }
    }
    for (const TextPart& part : added_.split(text, places, written)) {
      if (part.token) {
        ids.push_back(*part.token);
        continue;
      }
      const bool first = part.text.data() == text.data();
      const SentencePieceProcessor& processor =
          first || without_prefix_ == nullptr ? *processor_ : *without_prefix_;
      std::vector<int> tokens;
      const auto status = [&] {
        const files::DiskCall counted;  // may take long, and gives no sign of life
        return processor.Encode(part.text, &tokens);
      }();
      ZERO_CHECK(status.ok(), "SentencePiece cannot encode {} bytes: {}", part.text.size(),
                 printable_line(status.ToString()));
      if (places.guards) {
        check_messages(processor, part.text,
                       static_cast<std::size_t>(part.text.data() - text.data()),
                       {places.ranges, steering});
      }
      ids.insert(ids.end(), tokens.begin(), tokens.end());
    }
  }

  static std::string_view text_of(std::string_view text, const ByteRange& range) {
    return text.substr(range.begin, range.end - range.begin);
  }

  /// What the template of a chat wrote, and the pieces that steer it.
  struct Guard {
    std::span<const ByteRange> ranges;
    const std::set<std::uint32_t>& steering;
  };

  /// Refuses a steering piece that a message of a chat contains, or joins by being empty: the
  /// library cannot be told to read it as words. `part` begins at byte `offset` of the text.
  void check_messages(const SentencePieceProcessor& processor, std::string_view part,
                      std::size_t offset, const Guard& guard) const {
    if (guard.steering.empty()) return;
    const auto encoded = [&] {
      const files::DiskCall counted;  // likewise
      return processor.EncodeAsImmutableProto(part);
    }();
    for (const auto& piece : encoded.pieces()) {
      if (!guard.steering.contains(piece.id())) continue;
      const std::size_t begin = offset + piece.begin();
      const std::size_t end = offset + piece.end();
      ZERO_CHECK(within(guard.ranges, begin, end),
                 "a message contains or completes \"{}\", a piece of the tokenizer's model that "
                 "may steer the chat; leave it out, or give the whole prompt, rendered elsewhere, "
                 "with --special",
                 printable_line(piece.surface()));
    }
  }

  std::unique_ptr<SentencePieceProcessor> processor_;
  std::unique_ptr<SentencePieceProcessor> without_prefix_;  // after an added token; may be null
  AddedTokens added_;
  AddedTokens user_defined_;
  std::set<std::uint32_t> steering_{};  // of user_defined_, in any chat
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& path,
                                                        const TokenizerConfig& config) {
  return make_sentencepiece_tokenizer(path, read_model_text(path), config);
}

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& path,
                                                        const std::string& content,
                                                        const TokenizerConfig& config) {
  const SentencePieceModel model = check_sentencepiece_model(path, content);
  auto processor = load(path, model.bytes);
  std::unique_ptr<SentencePieceProcessor> without_prefix;
  if (!config.legacy) without_prefix = load(path, model.bytes + std::string(kWithoutPrefix));
  std::vector<AddedToken> added = added_tokens_of(*processor, model, config);
  TokenTable table = table_of(*processor, model, added, config);
  std::vector<AddedToken> found;
  for (const auto& [name, id] : table.special) {
    found.push_back({.content = name, .id = id, .special = true});
  }
  found.insert(found.end(), added.begin(), added.end());
  guard_tokens(found, config.chat_template.text, config.special.contents());
  std::vector<AddedToken> pieces = user_defined_pieces(*processor, model, config);
  return std::make_unique<SentencePieceTokenizer>(
      std::move(table), std::move(processor), std::move(without_prefix),
      AddedTokens(std::move(found), path + ": the tokens beside it"), std::move(pieces));
}

}  // namespace zero
