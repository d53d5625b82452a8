// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/collectives/body.h"
#include "tests/support/reference_sums.h"

namespace zero::test {
namespace {

// Where the result goes: memory of its own, the rank's own slice, or one of the addends.
enum class Target { apart, own_slice, addend };

struct ReduceCase {
  Plan cut;
  DType wire = DType::fp32;
  DType result = DType::fp32;
  int addends = 0;
  Target target = Target::apart;
};

double addend_value(int which, std::int64_t i) {
  return which * 1e3 + 0.3 * static_cast<double>(i % 11);
}

double expected_element(const ReduceCase& c, int world, std::int64_t begin, std::int64_t i) {
  std::array<float, 64> values;
  for (int peer = 0; peer < world; ++peer) {
    values.at(static_cast<std::size_t>(peer)) =
        static_cast<float>(rounded(wild(peer, begin + i), c.wire));
  }
  float sum = testing::tree_sum(std::span(values).first(static_cast<std::size_t>(world)));
  for (int a = 0; a < c.addends; ++a) sum += static_cast<float>(addend_value(a, i));
  return rounded(sum, c.result);
}

void expect_same_bits(double got, double expected, const std::string& what, std::int64_t i) {
  if (std::bit_cast<std::uint64_t>(got) == std::bit_cast<std::uint64_t>(expected)) return;
  fail("{}: element {} is {:a}, expected {:a}", what, i, got, expected);
}

void expect_same_bits(const std::vector<double>& got, const std::vector<double>& expected,
                      const std::string& what) {
  expect(got.size() == expected.size(), what + ": wrong size");
  for (std::size_t i = 0; i < got.size(); ++i) {
    expect_same_bits(got[i], expected[i], what, static_cast<std::int64_t>(i));
  }
}

void expect_norm(const ExactSum& norm, const std::vector<double>& values, const std::string& what) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  expect(std::abs(norm.value() - sum) <= 1e-12 * sum,
         fmt::format("{}: sum of squares {}, expected {}", what, norm.value(), sum));
}

void check_reduction(const Rank& rank, const ReduceCase& c) {
  const Buffer buffer = rank.allocate(c.cut.buffer, c.wire);
  const Slices full{.buffer = buffer.view(), .ranges = c.cut.ranges};
  const View own = full.of(rank.rank());
  const Buffer workspace = rank.allocate(rank.comm.reduce_scatter_workspace(full), c.wire);
  std::vector<Buffer> addends;
  ReduceEpilogue epilogue;
  for (int a = 0; a < c.addends; ++a) {
    addends.push_back(rank.allocate(own.count(), DType::fp32));
    epilogue.addends.push_back(addends.back().view());
    rank.fill(addends.back().view(), [a](std::int64_t i) { return addend_value(a, i); });
  }
  const Buffer apart = rank.allocate(own.count(), c.result);
  epilogue.destination = c.target == Target::own_slice ? own
                         : c.target == Target::addend  ? epilogue.addends.back()
                                                       : apart.view();
  epilogue.destination = epilogue.destination.reinterpret(c.result, own.count());
  epilogue.norm = std::make_shared<ExactSum>();
  rank.fill(full.buffer, [r = rank.rank()](std::int64_t i) { return wild(r, i); });
  rank.communicate([&](Stream& stream) {
    rank.comm.reduce_scatter(full, epilogue, workspace.view(), stream, {"reduce_scatter test"});
  });

  const std::string what =
      fmt::format("reduce_scatter of {} {} into {} with {} addends on {} ranks", c.cut.buffer,
                  name_of(c.wire), name_of(c.result), c.addends, rank.world());
  const auto [begin, count] = full.ranges[static_cast<std::size_t>(rank.rank())];
  const auto result = rank.read(epilogue.destination);
  expect(static_cast<std::int64_t>(result.size()) == count, what + ": wrong size");
  for (std::int64_t i = 0; i < count; i += check_step(count)) {
    const double expected = expected_element(c, rank.world(), begin, i);
    expect_same_bits(result[static_cast<std::size_t>(i)], expected, what, i);
  }
  expect_norm(*epilogue.norm, result, what);
  const auto after = rank.read(full.buffer);  // only read, but for an own slice that was the target
  for (std::int64_t i = 0; i < full.buffer.count(); i += check_step(count)) {
    if (c.target == Target::own_slice && i >= begin && i < begin + count) continue;
    expect_same_bits(after[static_cast<std::size_t>(i)], rounded(wild(rank.rank(), i), c.wire),
                     what + ", full afterwards", i);
  }
}

template <typename T>
T reference(ReduceOp op, T a, T b) {
  if (op == ReduceOp::max) return std::max(a, b);
  if (op == ReduceOp::min) return std::min(a, b);
  return a + b;
}

double tree_of(ReduceOp op, DType dtype, std::span<const double> values) {
  if (values.size() == 1) return values.front();
  const std::size_t half = std::bit_floor(values.size() - 1);
  const double left = tree_of(op, dtype, values.first(half));
  const double right = tree_of(op, dtype, values.subspan(half));
  return rounded(reference(op, left, right), dtype);
}

double all_reduce_value(DType dtype, int rank, std::int64_t i) {
  if (is_floating(dtype)) return rounded(wild(rank, i), dtype);
  return static_cast<double>((i * 7919 + rank * 104729) % 100003 - 50000);
}

void check_one_all_reduce(const Rank& rank, std::int64_t count, DType dtype, ReduceOp op) {
  const Buffer buffer = rank.allocate(count, dtype);
  rank.fill(buffer.view(),
            [r = rank.rank(), dtype](std::int64_t i) { return all_reduce_value(dtype, r, i); });
  rank.communicate([&](Stream& stream) {
    rank.comm.all_reduce(buffer.view().reinterpret(dtype, count), op, stream, {"all_reduce test"});
  });
  const auto what = fmt::format("all_reduce {} of {} {} on {} ranks", static_cast<int>(op), count,
                                name_of(dtype), rank.world());
  const auto result = rank.read(buffer.view());
  for (std::int64_t i = 0; i < count; i += check_step(count)) {
    std::array<double, 64> values;
    for (int peer = 0; peer < rank.world(); ++peer) {
      values.at(static_cast<std::size_t>(peer)) = all_reduce_value(dtype, peer, i);
    }
    const auto world = static_cast<std::size_t>(rank.world());
    const double expected = tree_of(op, dtype, std::span(values).first(world));
    expect_same_bits(result[static_cast<std::size_t>(i)], expected, what, i);
  }
}

void check_wrapping(const Rank& rank) {
  const Buffer buffer = rank.allocate(3, DType::i32);
  rank.fill(buffer.view(), [](std::int64_t) { return std::numeric_limits<std::int32_t>::max(); });
  rank.communicate([&](Stream& stream) {
    rank.comm.all_reduce(buffer.view(), ReduceOp::sum, stream, {"wrapping sum"});
  });
  const auto wrapped =
      static_cast<std::int32_t>(static_cast<std::uint32_t>(rank.world()) * 0x7fffffffU);
  expect(rank.read(buffer.view()) == std::vector<double>(3, wrapped), "i32 sums wrap");
}

void check_nan(const Rank& rank) {
  for (const ReduceOp op : {ReduceOp::max, ReduceOp::min, ReduceOp::sum}) {
    const Buffer buffer = rank.allocate(2, DType::fp32);
    const bool last = rank.rank() == rank.world() - 1;
    rank.fill(buffer.view(),
              [last](std::int64_t i) { return i == 0 && last ? std::nan("") : 1.0; });
    rank.communicate(
        [&](Stream& stream) { rank.comm.all_reduce(buffer.view(), op, stream, {"nan"}); });
    const auto got = rank.read(buffer.view());
    expect(std::isnan(got[0]) && !std::isnan(got[1]), "a NaN survives every all_reduce");
  }
}

}  // namespace

void check_reduce_scatter(const Rank& rank, std::int64_t total) {
  for (const DType wire : {DType::fp32, DType::bf16, DType::fp16}) {
    if (total > 20000 && wire != DType::bf16) continue;
    for (const Cut cut : {Cut::even, Cut::uneven, Cut::strided}) {
      if (total > 20000 && cut != Cut::uneven) continue;
      const Plan slices = plan(cut, total, rank.world());
      check_reduction(rank, {slices, wire, DType::fp32, 0, Target::apart});
      check_reduction(rank, {slices, wire, DType::bf16, 2, Target::apart});
      check_reduction(rank, {slices, wire, wire, 1, Target::own_slice});
      check_reduction(rank, {slices, wire, DType::fp32, 2, Target::addend});
    }
  }
}

void check_buckets(const Rank& rank) {
  constexpr std::int64_t kShard = 640;
  const Buffer buffer = rank.allocate(kShard * rank.world(), DType::bf16);
  rank.fill(buffer.view(), [r = rank.rank()](std::int64_t i) { return wild(r, i); });
  std::vector<std::vector<double>> results;
  for (const std::int64_t bucket : {kShard, std::int64_t{64}, std::int64_t{192}}) {
    const Buffer shard = rank.allocate(kShard, DType::fp32);
    const auto norm = std::make_shared<ExactSum>();
    for (std::int64_t begin = 0; begin < kShard; begin += bucket) {
      const std::int64_t count = std::min(bucket, kShard - begin);
      const Slices full = Slices::strided(buffer.view(), rank.world(), begin, count);
      const Buffer workspace = rank.allocate(rank.comm.reduce_scatter_workspace(full), DType::bf16);
      rank.communicate([&](Stream& stream) {
        rank.comm.reduce_scatter(full, {{}, shard.slice(begin, count), norm}, workspace.view(),
                                 stream, {"bucket"});
      });
      rank.read(shard.view());  // the workspace is free again
    }
    results.push_back(rank.read(shard.view()));
    results.back().push_back(norm->value());
  }
  expect_same_bits(results[1], results[0], "buckets of 64");
  expect_same_bits(results[2], results[0], "buckets of 192");
}

void check_all_reduce(const Rank& rank, std::int64_t total) {
  for (const DType dtype : {DType::fp32, DType::fp64, DType::i32, DType::i64}) {
    if (total > 20000 && dtype != DType::fp32) continue;
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
      if (total > 20000 && op != ReduceOp::sum) continue;
      check_one_all_reduce(rank, total, dtype, op);
    }
  }
  check_wrapping(rank);
  check_nan(rank);
}

}  // namespace zero::test
