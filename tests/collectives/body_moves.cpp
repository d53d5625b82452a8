// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "tests/collectives/body.h"

namespace zero::test {
namespace {

constexpr std::uint8_t kUntouched = 0xa5;

std::uint8_t pattern(int from, int to, std::int64_t i) {
  return static_cast<std::uint8_t>(from * 41 + to * 13 + i * 7 + i / 256);
}

// Bytes of `full` that lie in no slice must not change; those of slice r come from rank r.
template <typename Value>
void expect_slices(const std::vector<std::uint8_t>& bytes, const Slices& full, Value value,
                   const std::string& what) {
  std::vector<std::uint8_t> expected(bytes.size(), kUntouched);
  const std::int64_t size = size_of(full.buffer.dtype());
  for (int r = 0; r < full.world(); ++r) {
    const auto [begin, count] = full.ranges[static_cast<std::size_t>(r)];
    for (std::int64_t i = 0; i < count * size; ++i) {
      expected[static_cast<std::size_t>(begin * size + i)] = value(r, i);
    }
  }
  expect(bytes == expected, what);
}

enum class Place { in_place, apart };

void check_all_gather(const Rank& rank, const Plan& cut, DType dtype, Place place) {
  const Buffer buffer = rank.allocate(cut.buffer, dtype);
  const Slices full{.buffer = buffer.view(), .ranges = cut.ranges};
  const View own = full.of(rank.rank());
  const Buffer apart = rank.allocate(place == Place::apart ? own.count() : 0, dtype);
  const View mine = place == Place::apart ? apart.view().reinterpret(dtype, own.count()) : own;
  rank.fill_bytes(full.buffer, [](std::int64_t) { return kUntouched; });
  rank.fill_bytes(mine, [r = rank.rank()](std::int64_t i) { return pattern(r, 0, i); });
  rank.communicate(
      [&](Stream& stream) { rank.comm.all_gather(mine, full, stream, {"all_gather test"}); });
  expect_slices(
      rank.read_bytes(full.buffer), full, [](int r, std::int64_t i) { return pattern(r, 0, i); },
      fmt::format("all_gather of {} {} on {} ranks", cut.buffer, name_of(dtype), rank.world()));
}

// Rank r sends rank p (r + 2p) % 4 parts of `unit` elements.
void check_all_to_all(const Rank& rank, std::int64_t unit, DType dtype) {
  const auto elements = [unit](int from, int to) { return unit * ((from + 2 * to) % 4); };
  Plan out;
  Plan in;
  for (int p = 0; p < rank.world(); ++p) {
    out.ranges.push_back({out.buffer + 1, elements(rank.rank(), p)});
    out.buffer += 1 + out.ranges.back().count;
    in.ranges.push_back({in.buffer + 2, elements(p, rank.rank())});
    in.buffer += 2 + in.ranges.back().count;
  }
  const Buffer sent = rank.allocate(out.buffer, dtype);
  const Buffer received = rank.allocate(in.buffer, dtype);
  const Slices send{.buffer = sent.view(), .ranges = out.ranges};
  const Slices receive{.buffer = received.view(), .ranges = in.ranges};
  for (int p = 0; p < rank.world(); ++p) {
    rank.fill_bytes(send.of(p), [r = rank.rank(), p](std::int64_t i) { return pattern(r, p, i); });
  }
  rank.fill_bytes(receive.buffer, [](std::int64_t) { return kUntouched; });
  rank.communicate(
      [&](Stream& stream) { rank.comm.all_to_all(send, receive, stream, {"all_to_all test"}); });
  expect_slices(
      rank.read_bytes(receive.buffer), receive,
      [&](int p, std::int64_t i) { return pattern(p, rank.rank(), i); },
      fmt::format("all_to_all of {} {} on {} ranks", unit, name_of(dtype), rank.world()));
}

void check_broadcast(const Rank& rank, std::int64_t count, int root) {
  const Buffer buffer = rank.allocate(count, DType::u16);
  const View values = buffer.view();
  rank.fill_bytes(values, [r = rank.rank()](std::int64_t i) { return pattern(r, 9, i); });
  rank.communicate(
      [&](Stream& stream) { rank.comm.broadcast(values, root, stream, {"broadcast test"}); });
  const auto bytes = rank.read_bytes(values);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    ZERO_CHECK(bytes[i] == pattern(root, 9, static_cast<std::int64_t>(i)),
               "byte {} of a broadcast of {} from rank {} is wrong", i, count, root);
  }
}

}  // namespace

void check_moves(const Rank& rank, std::int64_t total) {
  constexpr std::array kAll{DType::fp32, DType::bf16, DType::fp16, DType::fp64,
                            DType::i32,  DType::i64,  DType::u8,   DType::u16};
  for (const DType dtype : kAll) {
    if (total > 20000 && dtype != DType::bf16) continue;
    for (const Cut cut : {Cut::even, Cut::uneven, Cut::strided}) {
      if (total > 20000 && cut != Cut::uneven) continue;
      check_all_gather(rank, plan(cut, total, rank.world()), dtype, Place::in_place);
      check_all_gather(rank, plan(cut, total, rank.world()), dtype, Place::apart);
    }
    check_all_to_all(rank, total / rank.world(), dtype);
  }
  for (const int root : {0, rank.world() / 2, rank.world() - 1}) {
    check_broadcast(rank, total, root);
  }
  rank.communicate([&](Stream& stream) { rank.comm.barrier(stream, {"barrier test"}); });
}

// Gathers from elsewhere and in place, over and over in the same memory: a rank's values of the
// next round must not show before its peers have read those of this one. Even rounds write in
// place, after a barrier; the gathers of odd ones are that barrier themselves.
void check_common(const Rank& rank, std::int64_t total) {
  rank.read({});  // no collective is in flight
  const Plan cut = plan(Cut::uneven, total, rank.world());
  const SharedBuffer made = rank.allocate_shared(cut.buffer, DType::u8);
  const Slices full{.buffer = made.buffer.view(), .ranges = cut.ranges};
  const View own = full.of(rank.rank());
  const Buffer apart = rank.allocate(own.count(), DType::u8);
  for (int round = 0; round < 4; ++round) {
    const bool in_place = round % 2 == 0;
    const auto value = [round](int r, std::int64_t i) { return pattern(r, round, i); };
    if (in_place) {
      rank.communicate([&](Stream& stream) { rank.comm.barrier(stream, {"common test"}); });
    }
    rank.fill_bytes(in_place ? own : apart.view(),
                    [value, r = rank.rank()](std::int64_t i) { return value(r, i); });
    rank.communicate([&](Stream& stream) {
      rank.comm.all_gather(in_place ? own : apart.view(), full, stream, {"common test"});
    });
    const auto bytes = rank.read_bytes(full.buffer);
    for (int r = 0; r < rank.world(); ++r) {
      const auto [begin, count] = full.ranges[static_cast<std::size_t>(r)];
      for (std::int64_t i = 0; i < count; ++i) {
        ZERO_CHECK(bytes[static_cast<std::size_t>(begin + i)] == value(r, i),
                   "byte {} of slice {} is wrong in round {} of {} common bytes on {} ranks", i, r,
                   round, cut.buffer, rank.world());
      }
    }
  }
}

}  // namespace zero::test
