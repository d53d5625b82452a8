// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulator/access_set.h"

#include <algorithm>
#include <bit>

namespace zero::cuda::emulated {
namespace {

constexpr std::uintptr_t kWord = 64;

}  // namespace

AccessSet::Page& AccessSet::page(std::uintptr_t number) {
  Known& known = known_[number % known_.size()];
  if (known.page == nullptr || known.number != number) known = {number, &pages_[number]};
  return *known.page;
}

void AccessSet::add(ByteRange bytes, Access access) {
  for (std::uintptr_t at = bytes.begin; at < bytes.end;) {
    const std::uintptr_t first = at % kWord;
    const std::uintptr_t count = std::min(kWord - first, bytes.end - at);
    const std::uint64_t marks =
        count == kWord ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
    page(at / kPage)[static_cast<std::size_t>(access)][at % kPage / kWord] |= marks << first;
    at += count;
  }
}

void AccessSet::clear() {
  pages_.clear();
  known_ = {};
}

std::vector<ByteRange> AccessSet::ranges(Access access) const {
  std::vector<ByteRange> all;
  const auto add_range = [&](std::uintptr_t begin, std::uintptr_t count) {
    if (all.empty() || all.back().end != begin) all.push_back({begin, begin});
    all.back().end = begin + count;
  };
  for (const auto& [number, page] : pages_) {
    std::uintptr_t begin = number * kPage;
    for (std::uint64_t marks : page[static_cast<std::size_t>(access)]) {
      for (std::uintptr_t at = begin; marks != 0;) {
        const auto skipped = static_cast<std::uintptr_t>(std::countr_zero(marks));
        const auto count = static_cast<std::uintptr_t>(std::countr_one(marks >> skipped));
        add_range(at + skipped, count);
        at += skipped + count;
        marks = skipped + count < kWord ? marks >> (skipped + count) : 0;
      }
      begin += kWord;
    }
  }
  return all;
}

}  // namespace zero::cuda::emulated
