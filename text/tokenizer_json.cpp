// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_json.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "text/byte_level.h"
#include "text/special_names.h"
#include "text/unicode.h"

namespace zero {
namespace {

using nlohmann::json;
using Names = std::initializer_list<std::string_view>;

/// GPT-2's words, which a ByteLevel pre-tokenizer finds with use_regex.
constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class Reader {
 public:
  Reader(std::string file, const std::string& text)
      : file_(std::move(file)), root_(JsonFields::parse(file_, text)) {}

  TokenizerJson run(const TokenizerConfig& config) {
    read_model();
    if (root_.has("normalizer")) read_normalizer(root_.object("normalizer"));
    if (root_.has("pre_tokenizer")) read_pre_tokenizer(root_.object("pre_tokenizer"));
    if (root_.has("decoder")) read_decoder(root_.object("decoder"));
    if (root_.has("post_processor")) read_post_processor(root_.object("post_processor"));
    read_added_tokens(config);
    bound_tokens();
    finish(root_, {"version", "truncation", "padding"});
    check_family();
    return std::move(out_);
  }

 private:
  static void finish(const JsonFields& fields, Names passed_over) {
    fields.finish({passed_over.begin(), passed_over.size()});
  }

  [[noreturn]] static void refuse(JsonFields& fields, std::string_view expected) {
    fail("{}: found {}, expected {}", fields.place("type"), fields.raw("type").dump(), expected);
  }

  JsonFields item(const json& value, std::string_view where) const {
    ZERO_CHECK(value.is_object(), "{}: {}: found {}, expected an object", file_, where,
               value.dump());
    return {value, file_, fmt::format("{}.", where)};
  }

  /// Calls `read` with `fields`, or with each of its `list` if it is a Sequence.
  template <typename Read>
  void each(JsonFields fields, std::string_view list, const Read& read) {
    if (fields.text("type") != "Sequence") return read(std::move(fields));
    for (const json& part : fields.raw(list))
      read(item(part, fields.place(list).substr(file_.size() + 2)));
    finish(fields, {});
  }

  void read_model() {
    JsonFields model = root_.object("model");
    ZERO_CHECK(model.text("type", "BPE") == "BPE", "{}: found {}, expected \"BPE\"",
               model.place("type"), model.raw("type").dump());
    model.only("continuing_subword_prefix", "", "parts of words are not marked");
    model.only("end_of_word_suffix", "", "ends of words are not marked");
    if (model.has("dropout")) model.only("dropout", 0.0, "the same text gives the same tokens");
    out_.byte_level = !model.flag("byte_fallback", false);
    out_.ignore_merges = model.flag("ignore_merges", false);
    const json& vocabulary = model.raw("vocab");
    ZERO_CHECK(vocabulary.is_object(), "{}: expected an object of tokens with ids",
               model.place("vocab"));
    for (const auto& [token, id] : vocabulary.items()) read_token(model, token, id);
    const json& merges = model.raw("merges");
    ZERO_CHECK(merges.is_array(), "{}: expected a list of merges", model.place("merges"));
    for (const json& merge : merges) read_merge(model, merge);
    finish(model, {"unk_token", "fuse_unk"});
    for (unsigned byte = 0; byte < 256; ++byte) {
      const std::string name = out_.byte_level ? byte_level_text(static_cast<unsigned char>(byte))
                                               : fmt::format("<0x{:02X}>", byte);
      const auto found = by_name_.find(name);
      ZERO_CHECK(found != by_name_.end(), "{}: has no token {}, expected one for each byte",
                 model.place("vocab"), name);
      out_.byte_ids[byte] = found->second;
      out_.table.pieces[found->second] = std::string(1, static_cast<char>(byte));
    }
  }

  std::string& piece(std::uint32_t id) {
    auto& pieces = out_.table.pieces;
    if (id >= pieces.size()) pieces.resize(id + 1);
    return pieces[id];
  }

  void read_token(JsonFields& model, const std::string& token, const json& id) {
    const std::uint32_t number = read_token_id(id, model.place("vocab"));
    by_name_.emplace(token, number);
    std::string text = token;
    if (out_.byte_level) {
      std::optional<std::string> bytes = byte_level_bytes(token);
      if (bytes) out_.ids.emplace(*bytes, number);
      text = bytes.value_or(token);
    } else {
      out_.ids.emplace(token, number);
      text = replaced(token, kSpaceSymbol, " ");
    }
    piece(number) = text;
  }

  /// "left right" or ["left", "right"]
  void read_merge(JsonFields& model, const json& merge) {
    std::pair<std::string, std::string> pair;
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const std::size_t space = std::min(text.find(' '), text.size());
      pair = {text.substr(0, space), text.substr(std::min(space + 1, text.size()))};
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      pair = {merge[0], merge[1]};
    }
    const auto left = by_name_.find(pair.first);
    const auto right = by_name_.find(pair.second);
    const auto merged = by_name_.find(pair.first + pair.second);
    ZERO_CHECK(left != by_name_.end() && right != by_name_.end() && merged != by_name_.end(),
               "{}: found {}, expected \"left right\" of which left, right and both together are "
               "in the vocabulary",
               model.place("merges"), merge.dump());
    out_.merges.add(left->second, right->second, merged->second);
  }

  void read_normalizer(JsonFields all) {
    each(std::move(all), "normalizers", [&](JsonFields fields) {
      const std::string type = fields.text("type");
      if (type == "NFC") {
        out_.nfc = true;
      } else if (type == "Prepend" && !out_.byte_level) {
        fields.only("prepend", kSpaceSymbol, "other prefixes are not known");
        out_.space = TokenizerJson::Space::prepended;
      } else if (type == "Replace" && !out_.byte_level) {
        fields.only("pattern", {{"String", " "}}, "other replacements are not known");
        fields.only("content", kSpaceSymbol, "other replacements are not known");
        out_.replaces_spaces = true;
      } else {
        refuse(fields, out_.byte_level ? "NFC" : "NFC, Prepend or Replace");
      }
      finish(fields, {});
    });
  }

  void read_pre_tokenizer(JsonFields all) {
    each(std::move(all), "pretokenizers", [&](JsonFields fields) {
      const std::string type = fields.text("type");
      ZERO_CHECK(!ends_words_, "{}: found {} behind ByteLevel or Metaspace, expected these last",
                 fields.place("type"), type);
      if (type == "Split" && out_.byte_level) {
        read_split(fields);
      } else if (type == "Digits" && out_.byte_level) {
        split(fields.flag("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)",
              SplitPattern::Keep::all, fields.place("type"));
      } else if (type == "ByteLevel" && out_.byte_level) {
        read_byte_level(fields);
      } else if (type == "Metaspace" && !out_.byte_level) {
        read_metaspace(fields);
      } else if (type == "Split" && out_.replaces_spaces) {
        // Gemma's: the normalizer has left no space to split at.
        constexpr const char* kWhy =
            "behind a normalizer that replaces spaces only Gemma's is known";
        fields.only("pattern", {{"String", " "}}, kWhy);
        fields.only("behavior", "MergedWithPrevious", kWhy);
        fields.only("invert", false, kWhy);
      } else {
        refuse(fields, out_.byte_level ? "Split, Digits or ByteLevel" : "Metaspace");
      }
      finish(fields, {"trim_offsets"});
    });
  }

  void split(const std::string& pattern, SplitPattern::Keep keep, const std::string& place) {
    constexpr std::size_t kMost = 16;
    ZERO_CHECK(out_.splits.size() < kMost, "{}: found more than {} patterns", place, kMost);
    out_.splits.emplace_back(pattern, keep, place);
  }

  void read_split(JsonFields& fields) {
    const std::string behaviour = fields.text("behavior");
    ZERO_CHECK(behaviour == "Isolated" || behaviour == "Removed",
               "{}: found {}, expected Isolated or Removed", fields.place("behavior"), behaviour);
    const bool invert = fields.flag("invert", false);
    JsonFields pattern = fields.object("pattern");
    using Keep = SplitPattern::Keep;
    const Keep removed = invert ? Keep::matches : Keep::gaps;
    split(pattern.text("Regex"), behaviour == "Isolated" ? Keep::all : removed,
          pattern.place("Regex"));
    finish(pattern, {});
  }

  void read_byte_level(JsonFields& fields) {
    ends_words_ = true;
    out_.prefix_space = fields.flag("add_prefix_space", true);
    ZERO_CHECK(!out_.prefix_space || out_.splits.empty(),
               "{}: found true behind another pre-tokenizer, expected false",
               fields.place("add_prefix_space"));
    if (fields.flag("use_regex", true)) {
      split(kGpt2Words, SplitPattern::Keep::all, fields.place("use_regex"));
    }
  }

  void read_metaspace(JsonFields& fields) {
    using Space = TokenizerJson::Space;
    ends_words_ = true;
    fields.only("replacement", kSpaceSymbol, "other symbols are not known");
    ZERO_CHECK(!fields.flag("split", true), "{}: found true, expected false",
               fields.place("split"));
    const std::string scheme =
        fields.text("prepend_scheme", fields.flag("add_prefix_space", true) ? "always" : "never");
    ZERO_CHECK(scheme == "first" || scheme == "always" || scheme == "never",
               "{}: found {}, expected first, always or never", fields.place("prepend_scheme"),
               scheme);
    ZERO_CHECK(out_.space == Space::none, "{}: found a Metaspace beside the normalizer Prepend",
               fields.place("type"));
    if (scheme != "never") out_.space = scheme == "first" ? Space::first : Space::each;
  }

  void read_decoder(JsonFields all) {
    each(std::move(all), "decoders", [&](JsonFields fields) {
      const std::string type = fields.text("type");
      if (type == "Strip" && !out_.byte_level) {
        fields.only("content", " ", "only spaces are known");
        fields.only("stop", 0, "the end of a text stays");
        ZERO_CHECK(fields.integer("start") == 1, "{}: expected 1", fields.place("start"));
        out_.table.drops_first_space = true;
      } else if (type == "Replace" && !out_.byte_level) {
        fields.only("pattern", {{"String", kSpaceSymbol}}, "other replacements are not known");
        fields.only("content", " ", "other replacements are not known");
      } else if (out_.byte_level ? type != "ByteLevel" : type != "ByteFallback" && type != "Fuse") {
        refuse(fields, out_.byte_level ? "ByteLevel" : "Replace, ByteFallback, Fuse or Strip");
      }
      finish(fields, {"add_prefix_space", "trim_offsets", "use_regex"});
    });
  }

  void read_post_processor(JsonFields all) {
    each(std::move(all), "processors", [&](JsonFields fields) {
      const std::string type = fields.text("type");
      if (type == "TemplateProcessing") return read_template(fields);
      if (type != "ByteLevel") refuse(fields, "ByteLevel or TemplateProcessing");
    });
  }

  /// Special tokens, then the text.
  void read_template(JsonFields& fields) {
    JsonFields specials = fields.object("special_tokens");
    bool text_seen = false;
    for (const json& part : fields.raw("single")) {
      JsonFields step = item(part, "post_processor.single");
      ZERO_CHECK(!text_seen, "{}: expected nothing behind the text", fields.place("single"));
      text_seen = step.has("Sequence");
      if (text_seen) continue;
      JsonFields special = specials.object(step.object("SpecialToken").text("id"));
      for (const json& id : special.raw("ids")) {
        out_.table.begin_of_text.push_back(read_token_id(id, specials.place("ids")));
      }
    }
  }

  void read_added_tokens(const TokenizerConfig& config) {
    std::vector<AddedToken> tokens;
    std::set<std::string> contents;
    for (const json& value : root_.raw("added_tokens")) {
      JsonFields fields = item(value, "added_tokens");
      tokens.push_back(
          read_added_token(fields, read_token_id(fields.raw("id"), fields.place("id"))));
      finish(fields, {});
      contents.insert(tokens.back().content);
      add(config, tokens.back());
    }
    for (const AddedToken& token : config.added_tokens) {
      if (contents.contains(token.content)) continue;
      const std::string& known = piece(token.id);
      if (!known.empty() && known != token.content) continue;
      contents.insert(token.content);
      add(config, tokens.emplace_back(token));
    }
    for (AddedToken& token : number_unlisted(config.special, listed(tokens, contents))) {
      add(config, tokens.emplace_back(std::move(token)));
    }
    guard_tokens(tokens, config.chat_template.text, config.special.contents());
    sort_added_tokens(std::move(tokens));
  }

  ListedTokens listed(const std::vector<AddedToken>& added, std::set<std::string> contents) const {
    ListedTokens all{.found = std::move(contents),
                     .id =
                         [this](const std::string& content) {
                           const auto at = by_name_.find(content);
                           return at == by_name_.end() ? std::nullopt : std::optional(at->second);
                         },
                     .taken = std::vector<bool>(out_.table.pieces.size())};
    for (const auto& [name, id] : by_name_) all.taken[id] = true;
    for (const AddedToken& token : added) all.taken[token.id] = true;
    return all;
  }

  void add(const TokenizerConfig& config, AddedToken& token) {
    cover(token.content.size());
    add_token(config, token, out_.table);
  }

  /// Those to be found in the normalized text are normalized too.
  void sort_added_tokens(std::vector<AddedToken> tokens) {
    std::vector<AddedToken> plain;
    std::vector<AddedToken> normalized;
    for (AddedToken& token : tokens) {
      if (token.normalized && !token.content.empty()) {
        token.prepended = out_.prepended().size();
        token.content = fmt::format("{}{}", out_.prepended(), out_.normal(token.content));
      }
      (token.normalized ? normalized : plain).push_back(std::move(token));
    }
    const std::string place = root_.place("added_tokens");
    out_.added = AddedTokens(std::move(plain), place);
    out_.added_normalized = AddedTokens(std::move(normalized), place);
  }

  void bound_tokens() {
    constexpr std::size_t kMostComposed = 3;  // bytes that NFC makes one byte of: Hangul's, 9 to 3
    for (const auto& [bytes, id] : out_.ids) cover(bytes.size());
    const bool removes = std::ranges::any_of(out_.splits, [](const SplitPattern& pattern) {
      return pattern.keep() != SplitPattern::Keep::all;
    });
    auto& most = out_.table.most_bytes_of_token;
    most = removes ? 0 : most * (out_.nfc ? kMostComposed : 1);
  }

  /// A token has so many bytes.
  void cover(std::size_t bytes) {
    out_.table.most_bytes_of_token = std::max(out_.table.most_bytes_of_token, bytes);
  }

  void check_family() const {
    ZERO_CHECK(ends_words_ || !out_.byte_level,
               "{}: pre_tokenizer: found no ByteLevel, expected it: without byte_fallback only "
               "byte-level models are computed",
               file_);
    ZERO_CHECK(out_.replaces_spaces || ends_words_ || out_.byte_level,
               "{}: normalizer: found no replacement of spaces by U+2581, expected it: with "
               "byte_fallback only models like Llama 2's are computed",
               file_);
  }

  std::string file_;
  JsonFields root_;
  TokenizerJson out_;
  std::unordered_map<std::string, std::uint32_t> by_name_;
  bool ends_words_ = false;  // ByteLevel or Metaspace was read
};

}  // namespace

std::string_view TokenizerJson::prepended() const {
  return space == Space::prepended ? kSpaceSymbol : std::string_view();
}

std::string TokenizerJson::normal(std::string_view text) const {
  const std::string plain = nfc ? composed(text) : std::string(text);
  return replaces_spaces ? replaced(plain, " ", kSpaceSymbol) : plain;
}

TokenizerJson parse_tokenizer_json(const std::string& file, const std::string& text,
                                   const TokenizerConfig& config) {
  return Reader(file, text).run(config);
}

}  // namespace zero
