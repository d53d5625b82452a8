// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What bf16 instructions read of stored codes, element for element.
#include "ops/cpu/bf16_dot_product.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "ops/cpu/packed_weight.h"
#include "ops/cpu/products.h"
#include "ops/quantized_rows.h"

namespace zero::testing {
namespace {

constexpr std::int64_t kGroup = 64;  // of u4

class Bf16DotProduct : public ::testing::TestWithParam<WeightFormat> {
 protected:
  /// A weight of random values.
  View packed(const WeightShape& shape) {
    std::vector<float> values(static_cast<std::size_t>(shape.in * shape.out));
    for (float& value : values) value = normal_(random_);
    memory_.resize(static_cast<std::size_t>(cpu::packed_bytes(shape)));
    const View weight(memory_.data(), std::ssize(memory_), DType::u8, nullptr);
    cpu::pack_weight(coded(shape, values), weight, 1);
    return weight;
  }

  /// Those of u4 are of equal steps, with zero points beside them.
  QuantizedRows coded(const WeightShape& shape, const std::vector<float>& values) {
    if (shape.format != WeightFormat::u4) return quantize(shape, 0, values, 1);
    WeightShape steps = shape;
    steps.format = WeightFormat::q4;
    const QuantizedRows from = quantize(steps, 0, values, 1);
    QuantizedRows rows(shape, 0, shape.file_rows());
    rows.codes = from.codes;
    for (std::int64_t column = 0; column < shape.out; ++column) {
      for (std::int64_t group = 0; group < rows.group_end(); ++group) {
        rows.zeros[rows.zero_at(group, column)] =
            static_cast<std::uint8_t>((3 * group + column) % 16);
        std::copy_n(from.scales.data() + from.scale_at(group * shape.group / 128, column), 2,
                    rows.scales.data() + rows.scale_at(group, column));
      }
    }
    return rows;
  }

  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;

 private:
  std::vector<std::byte> memory_;
};

struct alignas(64) Sums {
  std::array<float, 32> of_columns;
};

// x ends where its rows do, so that a sanitizer sees what is read behind them.
TEST_P(Bf16DotProduct, OfAnyCountHaveTheBitsOfOneAndTouchNoOther) {
  if (cpu::kernels_of(DType::bf16) != cpu::KernelKind::pairs) GTEST_SKIP() << "no pairs here";
  constexpr std::int64_t kIn = 160;
  constexpr std::int64_t kOut = 64;
  constexpr std::size_t kMost = 32;
  const WeightShape shape{kIn, kOut, WeightLayout::out_in, DType::bf16, GetParam(), kGroup};
  const cpu::StoredTiles stored = cpu::stored_tiles(shape, packed(shape));

  const auto multiply = [&](const std::vector<bfloat16>& x, const std::byte* next) {
    const std::size_t rows = x.size() / kIn;
    std::vector<Sums> sums(rows + 2, Sums{});
    cpu::Bf16DotProduct product = cpu::bf16_dot_product(stored, 0);
    product.x = reinterpret_cast<const std::byte*>(x.data());
    product.row_bytes = kIn * 2;
    product.rows = static_cast<std::int64_t>(rows);
    product.sums = sums[1].of_columns.data();
    product.next = next;
    cpu::multiply_bf16(product);
    EXPECT_EQ(sums.front().of_columns, Sums{}.of_columns) << "before " << rows << " rows";
    EXPECT_EQ(sums.back().of_columns, Sums{}.of_columns) << "behind " << rows << " rows";
    return std::vector<Sums>(sums.begin() + 1, sums.end() - 1);
  };
  std::vector<bfloat16> all(kMost * kIn);
  for (bfloat16& value : all) value = to_bfloat16(normal_(random_));
  std::vector<Sums> alone;
  for (std::size_t row = 0; row < kMost; ++row) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * kIn);
    alone.push_back(multiply({begin, begin + kIn}, nullptr).front());
  }
  for (std::size_t rows = 1; rows <= kMost; ++rows) {
    const std::vector<bfloat16> x(all.begin(),
                                  all.begin() + static_cast<std::ptrdiff_t>(rows * kIn));
    for (const std::byte* next : {static_cast<const std::byte*>(nullptr), stored.column(1)}) {
      const std::vector<Sums> found = multiply(x, next);
      for (std::size_t row = 0; row < rows; ++row) {
        ASSERT_EQ(found[row].of_columns, alone[row].of_columns) << row << " of " << rows << " rows";
      }
    }
  }
}

// Codes times scales, rounded, in tiles: those that looking up columns of a table gives.
TEST_P(Bf16DotProduct, AreWidenedToTheValuesOfTheirCodes) {
  if (cpu::bf16_instructions() == cpu::Bf16Instructions::none ||
      cpu::kernels_of(DType::bf16) == cpu::KernelKind::floats) {
    GTEST_SKIP() << "codes lie otherwise on this processor";
  }
  constexpr std::int64_t kIn = 200;
  constexpr std::int64_t kOut = 70;
  const WeightShape shape{kIn, kOut, WeightLayout::out_in, DType::bf16, GetParam(), kGroup};
  const View weight = packed(shape);

  std::vector<std::int32_t> columns(kOut);
  for (std::int32_t i = 0; i < kOut; ++i) columns[static_cast<std::size_t>(i)] = i;
  std::vector<bfloat16> expected(kIn * kOut);
  cpu::gather_columns(shape, weight, columns,
                      View(expected.data(), kIn * kOut, DType::bf16, nullptr));

  constexpr std::int64_t kDepthTiles = 7;  // of 32 in depth
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  std::vector<Line> lines(3 * kDepthTiles * 32);
  cpu::widen_columns(shape, weight, 0, 3, lines.data()->bytes.data());
  const auto* const tiles = reinterpret_cast<const bfloat16*>(lines.data());
  for (std::int64_t column = 0; column < 96; ++column) {
    for (std::int64_t depth = 0; depth < 32 * kDepthTiles; ++depth) {
      const std::int64_t tile = column / 32 * kDepthTiles + depth / 32;
      const std::int64_t half = column % 32 / 16;
      const std::int64_t at = tile * 1024 + half * 512 + depth % 32 / 2 * 32 + column % 16 * 2;
      const float value = to_float(tiles[at + depth % 2]);
      const bool inside = column < kOut && depth < kIn;
      const float wanted =
          inside ? to_float(expected[static_cast<std::size_t>(column * kIn + depth)]) : 0;
      ASSERT_EQ(wanted, value) << "depth " << depth << ", column " << column;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Bf16DotProduct,
                         ::testing::Values(WeightFormat::int8, WeightFormat::nf4, WeightFormat::q4,
                                           WeightFormat::u4),
                         [](const auto& format) { return std::string(name_of(format.param)); });

}  // namespace
}  // namespace zero::testing
