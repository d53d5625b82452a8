// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/text_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/json_tree.h"
#include "base/utf8.h"
#include "launch/data/token_file.h"

namespace zero {
namespace {

/// Bytes of the lines around a cut that are looked at.
constexpr std::size_t kAround = 2048;

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U; }

/// The end of `text`, about kAround bytes, from the beginning of a character on.
std::string_view last_part(std::string_view text) {
  std::size_t begin = text.size() > kAround ? text.size() - kAround : 0;
  while (begin < text.size() && continues_character(text[begin])) ++begin;
  return text.substr(begin);
}

std::string_view first_part(std::string_view text) {
  std::size_t end = std::min(kAround, text.size());
  while (end < text.size() && end > 0 && continues_character(text[end])) --end;
  return text.substr(0, end);
}

}  // namespace

TextEncoder::TextEncoder(const std::string& tokenizer, Special special)
    : bytes_(tokenizer == "bytes"),
      special_(special),
      tokenizer_(make_tokenizer(tokenizer)),
      newline_(begin("\n")) {}

std::vector<std::uint32_t> TextEncoder::begin(std::string_view text) const {
  if (special_ == Special::words) return tokenizer_->encode(text);
  const PromptPiece whole{std::string(text), true};
  return tokenizer_->encode_pieces({&whole, 1});
}

// A tokenizer may put a space before a text: behind a line's end it does not.
std::vector<std::uint32_t> TextEncoder::go_on(std::string_view text) const {
  std::vector<std::uint32_t> ids = begin("\n" + std::string(text));
  ids.erase(ids.begin(), ids.begin() + std::min(std::ssize(newline_), std::ssize(ids)));
  return ids;
}

std::size_t TextEncoder::cut(std::string_view text) const {
  constexpr int kTries = 64;
  std::size_t newline = text.rfind('\n');
  if (bytes_) return newline == std::string_view::npos ? 0 : newline + 1;
  for (int i = 0; i < kTries && newline != std::string_view::npos && newline > 0; ++i) {
    const std::string_view before = last_part(text.substr(0, newline + 1));
    const std::string_view behind = first_part(text.substr(newline + 1));
    if (!behind.empty()) {
      std::vector<std::uint32_t> apart = begin(before);
      std::ranges::copy(go_on(behind), std::back_inserter(apart));
      if (begin(std::string(before) + std::string(behind)) == apart) return newline + 1;
    }
    newline = text.rfind('\n', newline - 1);
  }
  return 0;
}

std::vector<std::uint32_t> TextEncoder::tokens_before() const {
  return tokenizer_->encode("", {.begin_of_text = true});
}

std::string TextEncoder::names_of(std::span<const std::uint32_t> ids) const {
  std::string names;
  for (const std::uint32_t id : ids) {
    std::string text = fmt::format("{}", id);
    for (const auto& [name, special] : tokenizer_->special_tokens()) {
      if (special == id) text = fmt::format("{} ({})", name, id);
    }
    names += names.empty() ? text : " " + text;
  }
  return names;
}

std::vector<std::string> TextEncoder::words_like_tokens(std::string_view text) const {
  if (special_ == Special::tokens) return {};
  return tokenizer_->special_in(text);
}

void check_is_text(const std::string& path, std::string_view bytes) {
  using namespace std::string_view_literals;
  struct Format {
    std::string_view begins;
    std::string_view name;
    std::string_view advice;
  };
  constexpr std::string_view kUnpack = "unpack it first";
  constexpr std::string_view kFields = "write the texts out, or as JSON lines for --json-field";
  constexpr std::array kFormats{
      Format{"\x1f\x8b"sv, "gzip", kUnpack},
      Format{"\x28\xb5\x2f\xfd"sv, "zstd", kUnpack},
      Format{"\xfd"
             "7zXZ"sv,
             "xz", kUnpack},
      Format{"BZh"sv, "bzip2", kUnpack},
      Format{"PK\x03\x04"sv, "a zip archive", kUnpack},
      Format{"PAR1"sv, "parquet", kFields},
      Format{"ARROW1"sv, "Arrow", kFields},
      Format{"\x93NUMPY"sv, "a NumPy array", "its numbers are tokens already, or no text"},
      Format{"\x89HDF"sv, "HDF5", kFields},
      Format{"\xff\xfe"sv, "UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"},
      Format{"\xfe\xff"sv, "UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"},
      Format{"\xc6\xd7\x34\x01"sv, "a model of llm.c", "name texts"},
      Format{"GGUF"sv, "a model (gguf)", "name texts"},
      Format{"MMIDIDX"sv, "an index of Megatron's tokens", "name texts"}};
  std::int32_t magic = 0;
  if (bytes.size() >= sizeof magic) std::memcpy(&magic, bytes.data(), sizeof magic);
  ZERO_CHECK(magic != kTokenMagic && magic != kLlama3Magic,
             "{}: is a token file, not a text; data.train of zero_train takes it as it is", path);
  ZERO_CHECK(magic != kEvaluationMagic,
             "{}: is questions of llm.c with tokens, not a text; name texts", path);
  for (const Format& format : kFormats) {
    ZERO_CHECK(!bytes.starts_with(format.begins), "{}: is {}, not a text; {}", path, format.name,
               format.advice);
  }
}

std::string json_line_advice(std::string_view line, bool last) {
  const std::size_t begin = line.find_first_not_of(" \t\r");
  if (begin != line.npos && line[begin] == '[') {
    return "; it begins a JSON array: write its members a line each, as jq -c '.[]' FILE does";
  }
  const auto invalid = first_invalid_utf8(line);
  const bool cut =
      last && invalid && utf8_start(line.substr(*invalid)).kind == Utf8Start::Kind::unfinished;
  if (invalid && !cut) return fmt::format("; byte {} of the line is not UTF-8", *invalid);
  const ReadJson read = read_json(line);
  if (read.outcome != ReadJson::Outcome::not_json) return "";
  const std::size_t at = std::max<std::size_t>(read.byte, 1) - 1;
  if (cut || at >= line.size()) {
    return last ? "; the file ends within the object: fetch it again, or remove the line"
                : "; the object goes on in the next line: write each on a line, as jq -c . FILE "
                  "does";
  }
  for (const std::string_view number : {"NaN", "Infinity"}) {
    if (line.substr(at).starts_with(number)) {
      return fmt::format("; {} at byte {} is no value of JSON: write null", number, at);
    }
  }
  if (read.what.find("surrogate") == std::string::npos) return "";
  return fmt::format(
      "; before byte {} is half a pair of surrogates (\\ud800 to \\udfff), which is no character: "
      "write \\ufffd in its place",
      at);
}

}  // namespace zero
