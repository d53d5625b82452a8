// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/copy.h"

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

namespace zero {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kStreamBytes = 4096;
/// Copied in parallel streams: several use more of the memory bandwidth than one.
constexpr std::int64_t kStreams = 4;
constexpr std::int64_t kAhead = 512;

// The baseline's vectors suffice: write-combining buffers emit whole lines.
void copy_line(const std::uint8_t* from, std::uint8_t* to) {
  const hn::ScalableTag<std::uint8_t> d;
  hwy::Prefetch(from + kAhead);
  for (std::size_t i = 0; i < kLine; i += hn::Lanes(d))
    hn::Stream(hn::LoadU(d, from + i), d, to + i);
}

}  // namespace

void copy_around_caches(const std::byte* from, std::byte* to, std::int64_t bytes) {
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to));
  const std::int64_t head = std::min((kLine - address % kLine) % kLine, bytes);
  std::memcpy(to, from, static_cast<std::size_t>(head));
  const auto* const source = reinterpret_cast<const std::uint8_t*>(from);
  auto* const target = reinterpret_cast<std::uint8_t*>(to);
  std::int64_t at = head;
  for (; at + kStreams * kStreamBytes <= bytes; at += kStreams * kStreamBytes) {
    for (std::int64_t line = 0; line < kStreamBytes; line += kLine) {
      for (std::int64_t stream = 0; stream < kStreams; ++stream) {
        const std::int64_t place = at + stream * kStreamBytes + line;
        copy_line(source + place, target + place);
      }
    }
  }
  hwy::FlushStream();
  std::memcpy(to + at, from + at, static_cast<std::size_t>(bytes - at));
}

}  // namespace zero
