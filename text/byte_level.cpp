// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/byte_level.h"

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace zero {
namespace {

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, 0x144> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool visible = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    const char32_t character = visible ? static_cast<char32_t>(byte) : next++;
    alphabet.character[static_cast<std::size_t>(byte)] = character;
    alphabet.byte[character] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string byte_level_text(unsigned char byte) {
  std::string text;
  append_utf8(text, kAlphabet.character[byte]);
  return text;
}

std::optional<std::string> byte_level_bytes(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const std::size_t length = utf8_start(text).bytes;
    const char32_t character = code_point(text.substr(0, length));
    if (character >= kAlphabet.byte.size() || kAlphabet.byte[character] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte[character]);
    text.remove_prefix(length);
  }
  return bytes;
}

std::string byte_tokenizer_json() {
  using nlohmann::ordered_json;
  const ordered_json byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", false}};
  ordered_json vocabulary;
  for (unsigned byte = 0; byte < 256; ++byte) {
    vocabulary[byte_level_text(static_cast<unsigned char>(byte))] = byte;
  }
  const ordered_json model{{"type", "BPE"},
                           {"dropout", nullptr},
                           {"unk_token", nullptr},
                           {"continuing_subword_prefix", nullptr},
                           {"end_of_word_suffix", nullptr},
                           {"fuse_unk", false},
                           {"byte_fallback", false},
                           {"ignore_merges", false},
                           {"vocab", vocabulary},
                           {"merges", ordered_json::array()}};
  const ordered_json file{{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", ordered_json::array()},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", byte_level},
                          {"post_processor", nullptr},
                          {"decoder", byte_level},
                          {"model", model}};
  return file.dump() + "\n";
}

}  // namespace zero
