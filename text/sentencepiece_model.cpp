// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/sentencepiece_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/added_tokens.h"

namespace zero {
namespace {

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

/// One field of a message in Protocol Buffers' wire format.
struct Field {
  std::uint32_t number = 0;
  Wire wire = Wire::varint;
  std::uint64_t varint = 0;
  std::string_view bytes;  ///< the content, but of a varint
  std::string_view whole;  ///< with its tag
};

/// Takes the fields of a message one by one. Reads what the library's parser reads, or refuses it:
/// groups and tags of more than 32 bits are in no model.
class Message {
 public:
  Message(std::string_view text, std::string place) : left_(text), place_(std::move(place)) {}

  bool next(Field& field) {
    if (left_.empty()) return false;
    const std::string_view begin = left_;
    const std::uint64_t tag = varint();
    field.number = static_cast<std::uint32_t>(tag >> 3U);
    field.wire = static_cast<Wire>(tag & 7U);
    if (tag > UINT32_MAX || field.number == 0) refuse();
    switch (field.wire) {
      case Wire::varint:
        field.varint = varint();
        break;
      case Wire::fixed64:
        field.bytes = take(8);
        break;
      case Wire::bytes:
        field.bytes = take(varint());
        break;
      case Wire::fixed32:
        field.bytes = take(4);
        break;
      default:
        refuse();
    }
    field.whole = begin.substr(0, begin.size() - left_.size());
    return true;
  }

  const std::string& place() const { return place_; }
  /// Refuses `field` unless it is of the type `wire`.
  void expect(const Field& field, Wire wire) const {
    if (field.wire != wire) refuse();
  }
  [[noreturn]] void refuse() const {
    fail(
        "{}: is not a SentencePiece model; give \"bytes\", a .model file, a tokenizer.json or a "
        "folder with one of them",
        place_);
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_[0]);
      left_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
    refuse();
  }

  std::string_view take(std::uint64_t bytes) {
    if (bytes > left_.size()) refuse();
    const std::string_view taken = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return taken;
  }

  std::string_view left_;
  std::string place_;
};

/// Fields of sentencepiece_model.proto.
namespace field_of_model {
constexpr std::uint32_t kPiece = 1;
constexpr std::uint32_t kTrainer = 2;
constexpr std::uint32_t kNormalizer = 3;
constexpr std::uint32_t kDenormalizer = 5;
}  // namespace field_of_model
namespace field_of_piece {
constexpr std::uint32_t kText = 1;
constexpr std::uint32_t kScore = 2;
constexpr std::uint32_t kType = 3;
}  // namespace field_of_piece
namespace field_of_normalizer {
constexpr std::uint32_t kCharsmap = 2;
constexpr std::uint32_t kSpaces = 4;  // remove_extra_whitespaces
}  // namespace field_of_normalizer
constexpr std::uint32_t kUserDefined = 4;  // type of a piece

class Check {
 public:
  explicit Check(const std::string& path) : path_(path) {}

  SentencePieceModel run(std::string_view model) {
    Message message(model, path_);
    for (Field field; message.next(field);) {
      switch (field.number) {
        case field_of_model::kPiece:
          message.expect(field, Wire::bytes);
          piece(field.bytes);
          break;
        case field_of_model::kTrainer:
          message.expect(field, Wire::bytes);
          well_formed({field.bytes, path_});
          break;
        case field_of_model::kNormalizer:
          message.expect(field, Wire::bytes);
          normalizer({field.bytes, path_}, "normalizer_spec");
          break;
        case field_of_model::kDenormalizer:
          message.expect(field, Wire::bytes);
          normalizer({field.bytes, path_}, "denormalizer_spec");
          break;
        default:
          continue;
      }
      out_.bytes += field.whole;
    }
    if (pieces_ == 0) message.refuse();
    check_nesting();
    return std::move(out_);
  }

 private:
  static void well_formed(Message message) {
    for (Field field; message.next(field);) continue;
  }

  void normalizer(Message message, const char* name) {
    for (Field field; message.next(field);) {
      if (field.number == field_of_normalizer::kSpaces) {
        message.expect(field, Wire::varint);
        out_.drops_spaces = field.varint != 0;
      }
      if (field.number != field_of_normalizer::kCharsmap) continue;
      message.expect(field, Wire::bytes);
      if (field.bytes.empty()) continue;
      check_charsmap(field.bytes, fmt::format("{}: {}.precompiled_charsmap", path_, name));
      out_.maps_characters = true;
    }
  }

  void piece(std::string_view bytes) {
    // The library walks back merges of unused pieces by recursion, a call for each byte at most.
    constexpr std::size_t kLongest = 2048;
    const std::string place = fmt::format("{}: pieces[{}]", path_, pieces_);
    ZERO_CHECK(++pieces_ <= kMostTokens, "{}: expected at most {} pieces", path_, kMostTokens);
    Message message(bytes, place);
    std::string_view text;
    float score = 0;
    std::uint32_t type = 0;
    for (Field field; message.next(field);) {
      if (field.number == field_of_piece::kText) {
        message.expect(field, Wire::bytes);
        text = field.bytes;
      } else if (field.number == field_of_piece::kScore) {
        message.expect(field, Wire::fixed32);
        std::memcpy(&score, field.bytes.data(), sizeof(score));
      } else if (field.number == field_of_piece::kType) {
        message.expect(field, Wire::varint);
        type = static_cast<std::uint32_t>(field.varint);  // as the library, 32 bits
      }
    }
    ZERO_CHECK(!text.empty() && text.size() <= kLongest && text.find('\0') == text.npos,
               "{}.piece: has {} bytes{}, expected 1 to {} and no NUL", place, text.size(),
               text.find('\0') == text.npos ? "" : " with a NUL", kLongest);
    ZERO_CHECK(std::isfinite(score), "{}.score: found {}, expected a finite number", place, score);
    out_.longest_piece = std::max(out_.longest_piece, text.size());
    if (type == kUserDefined) out_.user_defined.emplace_back(text);
  }

  /// The library has places for so many user-defined pieces that begin one another.
  void check_nesting() {
    constexpr std::size_t kMost = 64;
    std::ranges::sort(out_.user_defined);
    std::vector<std::string_view> open;  // each begins the next
    for (const std::string_view text : out_.user_defined) {
      while (!open.empty() && !text.starts_with(open.back())) open.pop_back();
      open.push_back(text);
      ZERO_CHECK(open.size() <= kMost,
                 "{}: pieces: found more than {} user-defined pieces that begin one another, "
                 "expected fewer",
                 path_, kMost);
    }
  }

  const std::string& path_;
  SentencePieceModel out_;
  std::size_t pieces_ = 0;
};

}  // namespace

bool is_tiktoken(std::string_view model) {
  const std::string_view line = model.substr(0, model.find('\n'));
  const std::size_t space = line.find(' ');
  const auto all = [](std::string_view text, std::string_view more, auto is) {
    return !text.empty() && std::ranges::all_of(text, [&](char c) {
      return is(static_cast<unsigned char>(c)) != 0 || more.find(c) != more.npos;
    });
  };
  return space != line.npos &&
         all(line.substr(0, space), "+/=", [](int c) { return std::isalnum(c); }) &&
         all(line.substr(space + 1), "\r", [](int c) { return std::isdigit(c); });
}

SentencePieceModel check_sentencepiece_model(const std::string& path, std::string_view model) {
  ZERO_CHECK(!is_tiktoken(model),
             "{}: is a vocabulary of tiktoken, lines of a token in base64 and its rank, which does "
             "not say how text is cut into words; put the model's tokenizer.json beside it",
             path);
  return Check(path).run(model);
}

}  // namespace zero
