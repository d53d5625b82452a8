// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/bpe_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/sign_of_life.h"
#include "base/utf8.h"
#include "text/tokenizer_json.h"
#include "text/unicode.h"
#include "weights/model_files.h"

namespace zero {
namespace {

using Ids = std::vector<std::uint32_t>;

/// Words or characters from one sign of life to the next: some milliseconds.
constexpr std::size_t kPartsBetweenSigns = 1 << 16;

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(TokenizerJson json)
      : Tokenizer(std::exchange(json.table, {})), json_(std::move(json)) {}

 private:
  /// Tokens of the words of one text: a part of `ids` each.
  using Words = std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>>;

  void do_encode(std::string_view raw, const TokenPlaces& places, Ids& ids) const override {
    const std::string text = replace_invalid_utf8(raw);
    const std::set<std::uint32_t> written = written_by_template(text, places);
    for (const TextPart& part : json_.added.split(text, places, written)) {
      if (part.token) {
        ids.push_back(*part.token);
        continue;
      }
      const auto begin = static_cast<std::size_t>(part.text.data() - text.data());
      std::vector<ByteRange> marks;
      const std::string normal =
          normalized(text, {begin, begin + part.text.size()}, places.ranges, marks);
      for (const TextPart& piece :
           json_.added_normalized.split(normal, {marks, places.guards}, written)) {
        if (piece.token) {
          ids.push_back(*piece.token);
        } else {
          const bool first = part.text.data() == text.data() && piece.text.data() == normal.data();
          encode_part(piece.text, first, ids);
        }
      }
    }
  }

  /// Ids of the added tokens in what the template of a chat wrote, literally or not.
  std::set<std::uint32_t> written_by_template(std::string_view text,
                                              const TokenPlaces& places) const {
    std::set<std::uint32_t> ids;
    if (!places.guards) return ids;
    for (const ByteRange& range : places.ranges) {
      const std::string_view part = text.substr(range.begin, range.end - range.begin);
      json_.added.add_contained(part, ids);
      if (!json_.added_normalized.empty()) {
        json_.added_normalized.add_contained(json_.normal(part), ids);
      }
    }
    return ids;
  }

  /// The bytes `part` of a text, normalized; `marks` are what becomes of the ranges `special` of
  /// the text. No character is composed across the border of a range.
  std::string normalized(std::string_view text, ByteRange part, std::span<const ByteRange> special,
                         std::vector<ByteRange>& marks) const {
    std::string out(json_.prepended());
    const auto append_to = [&](std::size_t end) {
      out += json_.normal(text.substr(part.begin, end - part.begin));
      part.begin = end;
    };
    auto next = std::ranges::partition_point(
        special, [&](const ByteRange& range) { return range.end <= part.begin; });
    for (; next != special.end() && next->begin < part.end; ++next) {
      const ByteRange range = *next;
      append_to(std::max(range.begin, part.begin));
      const std::size_t begin = out.size();
      append_to(std::min(range.end, part.end));
      marks.push_back({begin, out.size()});
    }
    append_to(part.end);
    return out;
  }

  void encode_part(std::string_view text, bool first, Ids& ids) const {
    if (!json_.byte_level) return encode_characters(text, first, ids);
    std::string with_space;
    if (json_.prefix_space && !text.starts_with(' ')) text = with_space = fmt::format(" {}", text);
    std::vector<std::string_view> words{text};
    for (const SplitPattern& pattern : json_.splits) {
      std::vector<std::string_view> parts;
      for (const std::string_view word : words) pattern.split(word, parts);
      words = std::move(parts);
    }
    Words known;
    Ids tokens;
    std::size_t done = 0;
    for (const std::string_view word : words) {
      if (++done % kPartsBetweenSigns == 0) give_sign_of_life();
      const auto [place, is_new] = known.try_emplace(word, ids.size(), 0);
      auto& [begin, count] = place->second;
      if (is_new) {
        encode_word(word, tokens);
        count = tokens.size();
        ids.insert(ids.end(), tokens.begin(), tokens.end());
      } else {
        for (std::size_t i = begin; i < begin + count; ++i) ids.push_back(ids[i]);
      }
    }
  }

  void encode_word(std::string_view word, Ids& tokens) const {
    tokens.clear();
    if (json_.ignore_merges) {
      const auto found = json_.ids.find(std::string(word));
      if (found != json_.ids.end()) return tokens.push_back(found->second);
    }
    for (const char c : word) tokens.push_back(json_.byte_ids[static_cast<unsigned char>(c)]);
    json_.merges.apply(tokens);
  }

  /// The text as one word of Unicode characters, U+2581 for a space.
  void encode_characters(std::string_view text, bool first, Ids& ids) const {
    using Space = TokenizerJson::Space;
    const bool begun = text.starts_with(' ') || text.starts_with(kSpaceSymbol);
    std::string word = replaced(text, " ", kSpaceSymbol);
    if (!begun && (json_.space == Space::each || (json_.space == Space::first && first))) {
      word.insert(0, kSpaceSymbol);
    }
    Ids tokens;
    if (const auto whole = json_.ids.find(word); json_.ignore_merges && whole != json_.ids.end()) {
      return ids.push_back(whole->second);
    }
    std::size_t done = 0;
    for (std::string_view left = word; !left.empty();) {
      if (++done % kPartsBetweenSigns == 0) give_sign_of_life();
      const std::string_view character = left.substr(0, utf8_start(left).bytes);
      left.remove_prefix(character.size());
      const auto found = json_.ids.find(std::string(character));
      if (found != json_.ids.end()) {
        tokens.push_back(found->second);
      } else {
        for (const char c : character) {
          tokens.push_back(json_.byte_ids[static_cast<unsigned char>(c)]);
        }
      }
    }
    json_.merges.apply(tokens);
    ids.insert(ids.end(), tokens.begin(), tokens.end());
  }

  TokenizerJson json_;  // without its table
};

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(const std::string& path,
                                              const TokenizerConfig& config) {
  return make_bpe_tokenizer(path, read_model_text(path), config);
}

std::unique_ptr<Tokenizer> make_bpe_tokenizer(const std::string& path, const std::string& text,
                                              const TokenizerConfig& config) {
  TokenizerJson json = parse_tokenizer_json(path, text, config);
  apply_config(config, json.table);
  return std::make_unique<BpeTokenizer>(std::move(json));
}

}  // namespace zero
