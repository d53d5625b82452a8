// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "text/sentencepiece_model.h"

namespace zero {
namespace {

constexpr std::string_view kAdvice =
    "the file is damaged, or made to break its readers; get it again, or give the model's "
    "tokenizer.json";

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kUnitBytes = 4;
constexpr std::size_t kBlock = 256;  // units: the children of a node lie in one aligned block
constexpr std::size_t kMostTrieBytes = std::size_t{4} << 20;
constexpr std::size_t kMostTextBytes = 256;  // that stand for a match; Unicode's rules have 33
constexpr int kMostPrefixes = 32;            // matches that the library keeps at a place of a text

/// A unit of a double array: an edge from a node to another, or a leaf.
class TrieUnit {
 public:
  explicit TrieUnit(std::uint32_t bits) : bits_(bits) {}
  /// The byte of the edge; a leaf's is no byte.
  std::uint32_t label() const { return bits_ & (kLeaf | 0xffU); }
  std::uint32_t offset() const { return bits_ >> 10U << ((bits_ & 0x200U) >> 6U); }
  bool ends_key() const { return (bits_ & 0x100U) != 0; }
  std::uint32_t value() const { return bits_ & ~kLeaf; }

 private:
  static constexpr std::uint32_t kLeaf = 1U << 31U;
  std::uint32_t bits_;
};

/// Visits each node of the trie once, depth first.
class TrieWalk {
 public:
  TrieWalk(std::string_view trie, std::string_view texts, const std::string& place)
      : units_(trie.size() / kUnitBytes),
        prefixes_(units_.size(), kUnseen),
        texts_(texts),
        place_(place) {
    std::memcpy(units_.data(), trie.data(), trie.size());
  }

  void run() {
    visit(child_of(0));
    while (!open_.empty()) {
      Visit& top = open_.back();
      if (top.byte == kBlock) {
        close();
        continue;
      }
      const std::uint32_t at = top.node ^ top.byte;
      if (TrieUnit(units_[at]).label() != top.byte++) continue;
      const std::uint32_t child = child_of(at);
      if (prefixes_[child] == kUnseen) {
        --top.byte;  // looked at again when the child's prefixes are known
        visit(child);
        continue;
      }
      ZERO_CHECK(prefixes_[child] != kOpen,
                 "{}: unit {} of the trie leads back to a unit above; {}", place_, at, kAdvice);
      count(top, TrieUnit(units_[at]).ends_key(), child);
    }
  }

 private:
  static constexpr std::int8_t kUnseen = -2;
  static constexpr std::int8_t kOpen = -1;
  struct Visit {
    std::uint32_t node;
    std::uint32_t byte;  // the next to look at
    int prefixes;        // matches on the way down from the node, at most
  };

  /// The node that the edge in unit `at` leads to: the place of its leaf and, XOR a byte, its
  /// edges.
  std::uint32_t child_of(std::uint32_t at) const {
    const std::uint32_t child = at ^ TrieUnit(units_[at]).offset();
    ZERO_CHECK(child < units_.size(),
               "{}: unit {} of the trie leads to unit {}, expected one of {}; {}", place_, at,
               child, units_.size(), kAdvice);
    return child;
  }

  void visit(std::uint32_t node) {
    prefixes_[node] = kOpen;
    open_.push_back({node, 0, 0});
  }

  void close() {
    prefixes_[open_.back().node] = static_cast<std::int8_t>(open_.back().prefixes);
    open_.pop_back();
  }

  void count(Visit& parent, bool ends_key, std::uint32_t child) {
    if (ends_key) check_text(TrieUnit(units_[child]).value());
    parent.prefixes = std::max(parent.prefixes, prefixes_[child] + (ends_key ? 1 : 0));
    ZERO_CHECK(parent.prefixes <= kMostPrefixes,
               "{}: the trie has a text with more than {} prefixes; {}", place_, kMostPrefixes,
               kAdvice);
  }

  void check_text(std::size_t begin) const {
    ZERO_CHECK(begin < texts_.size(), "{}: the trie has a text at byte {} of {}; {}", place_, begin,
               texts_.size(), kAdvice);
    const std::string_view text = texts_.substr(begin, kMostTextBytes + 1);
    const std::size_t bytes = text.find('\0');
    ZERO_CHECK(bytes != std::string_view::npos,
               "{}: the text at byte {} has no end within {} bytes; {}", place_, begin,
               kMostTextBytes, kAdvice);
    ZERO_CHECK(!first_invalid_utf8(text.substr(0, bytes)),
               "{}: the text at byte {} is not UTF-8; {}", place_, begin, kAdvice);
  }

  std::vector<std::uint32_t> units_;
  std::vector<std::int8_t> prefixes_;  // by node: of a text from there on, at most; or its state
  std::string_view texts_;
  const std::string& place_;
  std::vector<Visit> open_;
};

}  // namespace

void check_charsmap(std::string_view charsmap, const std::string& place) {
  std::uint32_t bytes = 0;
  ZERO_CHECK(charsmap.size() > kLengthBytes, "{}: has {} bytes, expected a trie and its texts; {}",
             place, charsmap.size(), kAdvice);
  std::memcpy(&bytes, charsmap.data(), kLengthBytes);
  charsmap.remove_prefix(kLengthBytes);
  ZERO_CHECK(
      bytes > 0 && bytes % (kBlock * kUnitBytes) == 0 && bytes <= kMostTrieBytes &&
          bytes < charsmap.size(),
      "{}: the trie has {} bytes of {}, expected a multiple of {} up to {}, and texts behind; "
      "{}",
      place, bytes, charsmap.size(), kBlock * kUnitBytes,
      std::min(kMostTrieBytes, charsmap.size() - 1), kAdvice);
  TrieWalk(charsmap.substr(0, bytes), charsmap.substr(bytes), place).run();
}

}  // namespace zero
