// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "collectives/host/claims.h"
#include "collectives/host/shared_file.h"
#include "tests/fuzz/fuzz.h"

// What a hostile rank may write where its peers read: its notice, a row of its table, where it
// wants what it gathers, what it says of its call, why it failed, and the lines that it tells. The
// checks may refuse anything, but what they pass must lie where it may.
namespace {

using zero::host::ExpectedDescriptor;
using zero::host::PeerDescriptor;

constexpr std::int64_t kBody = 8192;
constexpr std::int64_t kRegion = std::int64_t{1} << 40;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 46;

/// The input, from its start on; zeros behind its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : left_(data, size) {}

  template <typename T>
  T take() {
    T value{};
    const std::size_t bytes = std::min(sizeof value, left_.size());
    if (bytes > 0) std::memcpy(&value, left_.data(), bytes);
    left_ = left_.subspan(bytes);
    return value;
  }
  std::span<const std::byte> rest() const { return std::as_bytes(left_); }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(left_.data()), left_.size()};
  }

 private:
  std::span<const std::uint8_t> left_;
};

template <typename Check>
bool passes(Check check) {
  try {
    check();
  } catch (const zero::Error&) {
    return false;
  }
  return true;
}

// 128-bit sums, which do not overflow, say what in_range() must say.
bool lies_in(std::int64_t offset, std::int64_t bytes, std::int64_t room) {
  __extension__ using Wide = __int128;
  return offset >= 0 && bytes >= 0 && Wide{offset} + Wide{bytes} <= Wide{room};
}

void check_notice(Input& input) {
  ExpectedDescriptor awaited{.rank = 1, .body = kBody, .region = kRegion};
  awaited.element = std::int64_t{1} << (input.take<std::uint8_t>() % 4);
  awaited.count = input.take<std::uint32_t>() % (kMostBytes / awaited.element);
  const PeerDescriptor claim{.reach = input.take<zero::host::DataPath>(),
                             .agreement = 0,
                             .offset = input.take<std::int64_t>(),
                             .count = input.take<std::int64_t>()};
  if (!passes([&] { zero::host::check_claim(claim, awaited); })) return;
  zero::fuzz::expect(claim.count == awaited.count && claim.reach <= zero::host::DataPath::staged,
                     "a claim that passes is the awaited one");
  if (claim.count == 0 || claim.reach == zero::host::DataPath::staged) return;
  const bool posted = claim.reach == zero::host::DataPath::posted;
  zero::fuzz::expect(lies_in(claim.offset, claim.count * awaited.element, posted ? kBody : kRegion),
                     "a claim lies in its region");
}

void check_rest_of_table(Input& input) {
  const auto entry = input.take<zero::host::Entry>();
  if (passes([&] { zero::host::check_counts(entry, 1, 0, 4); })) {
    zero::fuzz::expect(
        lies_in(0, entry.count, kMostBytes / 4) && lies_in(0, entry.expected, kMostBytes / 4),
        "counts of a pair are bounded");
  }
  const auto destination = input.take<zero::host::Destination>();
  const auto extent = static_cast<std::int64_t>(input.take<std::uint32_t>());
  if (passes([&] { zero::host::check_destination(destination, 1, extent, kRegion); })) {
    zero::fuzz::expect(destination.offset < 0 || lies_in(destination.offset, extent, kRegion),
                       "a destination lies in its region");
  }
}

void check_body(const Input& input) {
  const std::vector<std::byte> body(input.rest().begin(), input.rest().end());
  const zero::Call call = zero::host::read_call(body);
  zero::fuzz::expect(call.name.size() + call.details.size() + 8 * call.counts.size() <= body.size(),
                     "a call is no longer than its bytes");
  static_cast<void>(zero::mismatch(call, 0, zero::host::read_call({}), 1));
  static_cast<void>(zero::mismatch(zero::host::read_call({}), 0, call, 1));
  const std::string why = zero::host::text_in(input.text());
  zero::fuzz::expect(why.size() <= input.text().size() && why.find('\n') == std::string::npos,
                     "words are no longer than their bytes");
}

void check_lines(const Input& input) {
  passes([&] {
    const auto invitation = zero::host::Invitation::parse(input.text());
    zero::fuzz::expect(zero::host::Invitation::parse(invitation.text()).text() == invitation.text(),
                       "an invitation is written as it was read");
    zero::fuzz::expect(
        invitation.process.id > 0 && invitation.descriptor >= 0 && invitation.bytes > 0,
        "an invitation names a process and a file");
  });
  passes([&] {
    const std::int64_t offset = zero::host::parse_offset(input.text(), 1, 4096, kRegion);
    zero::fuzz::expect(lies_in(offset, 4096, kRegion), "staging lies in its region");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input whole(data, size);
  check_lines(whole);
  check_body(whole);
  check_notice(whole);
  check_rest_of_table(whole);
  check_body(whole);
  return 0;
}
