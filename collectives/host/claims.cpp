// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/claims.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/printable.h"
#include "collectives/host/shared_file.h"

namespace zero::host {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 46;  // of address space that a process has
constexpr std::size_t kMostText = 1024;                     // bytes of a name in a notice

std::int64_t room_for(const PeerDescriptor& claim, const ExpectedDescriptor& awaited) {
  return claim.reach == DataPath::posted ? awaited.body : awaited.region;
}

// The count that precedes a list of elements of `element` bytes, limited to the bytes that follow.
std::size_t take_length(std::span<const std::byte>& from, std::size_t element) {
  std::uint64_t length = 0;
  if (from.size() < sizeof length) return 0;
  std::memcpy(&length, from.data(), sizeof length);
  from = from.subspan(sizeof length);
  return static_cast<std::size_t>(std::min<std::uint64_t>(length, from.size() / element));
}

}  // namespace

Entry read_once(const Entry& shared) {
  return {read_once(shared.offset), read_once(shared.count), read_once(shared.expected)};
}

Destination read_once(const Destination& shared) {
  return {read_once(shared.offset), read_once(shared.layout), read_once(shared.memory),
          read_once(shared.there)};
}

void fail_range(std::string_view what, std::int64_t offset, std::int64_t bytes, std::int64_t room) {
  fail("{}: {} bytes at offset {}, expected a range in its {} bytes", what, bytes, offset, room);
}

void check_claim(const PeerDescriptor& claim, const ExpectedDescriptor& awaited) {
  ZERO_CHECK(claim.reach <= awaited.farthest, "rank {}'s notice: reach is {}, expected at most {}",
             awaited.rank, static_cast<std::uint32_t>(claim.reach),
             static_cast<std::uint32_t>(awaited.farthest));
  ZERO_CHECK(claim.count == awaited.count, "rank {}'s notice: count is {}, expected {} elements",
             awaited.rank, claim.count, awaited.count);
  if (claim.count == 0 || claim.reach > DataPath::direct) return;  // not read, or not in place
  const std::int64_t bytes = claim.count * awaited.element;
  if (!in_range(claim.offset, bytes, room_for(claim, awaited)) ||
      claim.offset % awaited.element != 0) {
    fail(
        "rank {}'s notice: offset is {}, expected a multiple of {} with {} bytes of values in the "
        "{} bytes of its {}",
        awaited.rank, claim.offset, awaited.element, bytes, room_for(claim, awaited),
        claim.reach == DataPath::posted ? "notice" : "region");
  }
}

void check_destination(const Destination& destination, int rank, std::int64_t extent,
                       std::int64_t region) {
  if (destination.offset < 0) return;
  ZERO_CHECK(in_range(destination.offset, extent, region),
             "rank {}'s destination: offset is {}, expected {} bytes in the {} of its region", rank,
             destination.offset, extent, region);
}

void check_counts(const Entry& entry, int rank, int peer, std::int64_t element) {
  for (const std::int64_t count : {entry.count, entry.expected}) {
    ZERO_CHECK(count >= 0 && count <= kMostBytes / element,
               "rank {}'s table: count for rank {} is {}, expected 0 to {} elements", rank, peer,
               count, kMostBytes / element);
  }
}

std::int64_t parse_offset(std::string_view line, int rank, std::int64_t bytes,
                          std::int64_t region) {
  std::int64_t offset = -1;
  const char* const end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data(), end, offset);
  ZERO_CHECK(error == std::errc() && stop == end && in_range(offset, bytes, region),
             "rank {}'s staging offset is \"{}\", expected {} bytes in the {} of its region", rank,
             printable_line(line), bytes, region);
  return offset;
}

void write_call(const Call& call, std::span<std::byte> to) {
  const auto put = [&](const void* data, std::size_t bytes) {
    if (bytes == 0) return;  // an empty vector may have no data
    std::memcpy(to.data(), data, bytes);
    to = to.subspan(bytes);
  };
  for (const std::string& text : {call.name, call.details}) {
    const std::uint64_t length = std::min(text.size(), kMostText);
    put(&length, sizeof length);
    put(text.data(), length);
  }
  const std::size_t room = to.size() / sizeof(std::int64_t) - 1;
  const std::uint64_t counts = std::min(call.counts.size(), room);
  put(&counts, sizeof counts);
  put(call.counts.data(), counts * sizeof(std::int64_t));
}

Call read_call(std::span<const std::byte> from) {
  Call call;
  for (std::string* text : {&call.name, &call.details}) {
    const std::size_t length = std::min(take_length(from, 1), kMostText);
    *text = printable_line({reinterpret_cast<const char*>(from.data()), length});
    from = from.subspan(length);
  }
  call.counts.resize(take_length(from, sizeof(std::int64_t)));
  if (!call.counts.empty()) {
    std::memcpy(call.counts.data(), from.data(), call.counts.size() * sizeof(std::int64_t));
  }
  return call;
}

std::string text_in(std::span<const char> shared) {
  const std::string copy(shared.begin(), shared.end());
  return printable_line(std::string_view(copy).substr(0, copy.find('\0')));
}

}  // namespace zero::host
