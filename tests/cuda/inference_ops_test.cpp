// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Operations of inference on a GPU, emulated or not, beside the CPU's.
#include "ops/inference_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/errors.h"
#include "tests/ops/ops_harness.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

constexpr WeightFormat kFormats[] = {WeightFormat::plain, WeightFormat::int8, WeightFormat::nf4,
                                     WeightFormat::q4};
constexpr WeightFormat kCodes[] = {WeightFormat::int8, WeightFormat::nf4, WeightFormat::q4};

/// A device with InferenceOps.
class Inferring : public Harness {
 public:
  explicit Inferring(std::shared_ptr<Device> opened) : Harness(std::move(opened)) {}
  Inferring() : Inferring(open_tested_device()) {}

  std::unique_ptr<InferenceOps> inference = make_inference_ops(*device);

  /// A weight packed from a tensor of files, in a few calls however long it is: each waits for the
  /// device, which takes a turn of the scheduler where others are busy.
  View packed(const WeightShape& shape, const std::vector<float>& tensor) {
    const View weight = empty(inference->weight_bytes(shape), DType::u8);
    constexpr std::int64_t kMostCalls = 8;
    const std::int64_t step = std::max(
        2 * pack_rows(shape), round_up(div_ceil(shape.file_rows(), kMostCalls), pack_rows(shape)));
    for (std::int64_t first = 0; first < shape.file_rows(); first += step) {
      const std::int64_t count = std::min(step, shape.file_rows() - first);
      inference->pack(
          shape, first,
          std::span(tensor).subspan(static_cast<std::size_t>(first * shape.file_columns()),
                                    static_cast<std::size_t>(count * shape.file_columns())),
          weight);
    }
    return weight;
  }
  /// A matrix with memory for the rows that products compute at a time.
  View matrix(const Values& values, std::int64_t width, DType dtype) {
    Values padded = values;
    const std::int64_t rows = std::ssize(values) / width;
    padded.resize(static_cast<std::size_t>(inference->padded_rows(rows) * width));
    return tensor(padded, dtype);
  }
  std::vector<float> floats(const View& view) {
    const std::vector<std::byte> found = bytes(view);
    std::vector<float> values(found.size() / sizeof(float));
    std::memcpy(values.data(), found.data(), found.size());
    return values;
  }
};

std::vector<float> turned(const std::vector<float>& tensor, std::int64_t in, std::int64_t out) {
  std::vector<float> result(tensor.size());
  for (std::int64_t i = 0; i < in; ++i) {
    for (std::int64_t j = 0; j < out; ++j) {
      result[static_cast<std::size_t>(i * out + j)] = tensor[static_cast<std::size_t>(j * in + i)];
    }
  }
  return result;
}

std::vector<float> random_floats(std::int64_t count, std::uint32_t seed) {
  const Values values = random_values(count, seed, DType::bf16);
  return {values.begin(), values.end()};
}

/// y = x W + bias in fp32 on a device, the first `rows` rows of x.
std::vector<float> product(Inferring& on, const WeightShape& shape,
                           const std::vector<float>& tensor, std::int64_t rows) {
  const bool wide = shape.dtype != DType::fp32;
  const View weight = on.packed(shape, tensor);
  const View x = on.matrix(random_values(rows * shape.in, 1, DType::bf16), shape.in, shape.dtype);
  const View bias = wide ? View() : on.tensor(random_values(shape.out, 2), shape.dtype);
  const View y = on.empty(on.inference->padded_rows(rows) * shape.out, DType::fp32);
  on.inference->prepare(shape, rows);
  on.inference->prepare({.cache = {1, 8}, .heads = 1, .rows = 1, .sequences = 1, .tokens = 1});
  on.inference->allocate_scratch();
  on.inference->linear({shape, weight}, rows, x, bias, y);
  std::vector<float> found = on.floats(y);
  found.resize(static_cast<std::size_t>(rows * shape.out));
  return found;
}

struct Size {
  std::int64_t in, out, rows;
};

TEST(GpuInferenceOps, ProductsAreCloseToTheCpus) {
  for (const auto& [in, out, rows] : {Size{1, 1, 1}, Size{31, 33, 3}, Size{64, 70, 16},
                                      Size{768, 21, 1}, Size{1096, 40, 4}, Size{2300, 7, 2}}) {
    const std::vector<float> tensor = random_floats(in * out, 3);
    for (const DType dtype : kComputed) {
      for (const WeightFormat format : kFormats) {
        SCOPED_TRACE(fmt::format("{} x {}, {} rows of {}, format {}", in, out, rows, name_of(dtype),
                                 static_cast<int>(format)));
        const WeightShape shape{in, out, WeightLayout::out_in, dtype, format};
        Inferring gpu;
        Inferring cpu(cpu::open());
        const std::vector<float> found = product(gpu, shape, tensor, rows);
        // Processors with instructions of bf16 round codes' values to it.
        const double tolerance =
            dtype == DType::bf16 && format != WeightFormat::plain ? 4e-3 : 1e-6;
        const std::vector<float> expected = product(cpu, shape, tensor, rows);
        for (std::size_t i = 0; i < found.size(); ++i) {
          ASSERT_NEAR(found[i], expected[i], tolerance * static_cast<double>(in + 1)) << i;
        }
      }
    }
  }
}

// A grid has at most 65,535 blocks in its second dimension, each of eight columns.
TEST(GpuInferenceOps, ProductsOverCodesHaveAnyNumberOfColumns) {
  constexpr std::int64_t kIn = 8;
  constexpr std::int64_t kOut = 65'535 * 8 + 3;
  const std::vector<float> tensor = random_floats(kIn * kOut, 5);
  const WeightShape shape{kIn, kOut, WeightLayout::out_in, DType::fp32, WeightFormat::int8};
  Inferring gpu;
  Inferring cpu(cpu::open());
  const std::vector<float> found = product(gpu, shape, tensor, 1);
  const std::vector<float> expected = product(cpu, shape, tensor, 1);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-5) << i;
}

TEST(GpuInferenceOps, ProductsDependNeitherOnTheLayoutOfFilesNorOnTheNumberOfRows) {
  for (const auto& [in, out, rows] : {Size{30, 33, 9}, Size{1160, 37, 70}}) {
    const std::vector<float> tensor = random_floats(in * out, 4);
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      for (const WeightFormat format : kFormats) {
        const WeightShape shape{in, out, WeightLayout::out_in, dtype, format};
        WeightShape other = shape;
        other.layout = WeightLayout::in_out;
        Inferring gpu;
        const std::vector<float> all = product(gpu, shape, tensor, rows);
        // The vendor's library has a kernel for each layout.
        if (format != WeightFormat::plain) {
          EXPECT_EQ(product(gpu, other, turned(tensor, in, out), rows), all);
        }
        for (const std::int64_t fewer : {1, 4, 9}) {
          std::vector<float> first = all;
          first.resize(static_cast<std::size_t>(fewer * out));
          EXPECT_EQ(product(gpu, shape, tensor, fewer), first) << fewer << " rows";
        }
      }
    }
  }
}

/// The rows of one sequence, from position 0 on.
PassRows rows_of(const std::vector<std::int32_t>& tokens, std::span<const std::int32_t> blocks) {
  PassRows pass;
  pass.tokens = tokens;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    pass.positions.push_back(static_cast<std::int32_t>(i));
  }
  pass.sequences = {{0, std::ssize(tokens), 0, blocks}};
  return pass;
}

TEST(GpuInferenceOps, EmbeddingsAreTheCpusBitForBit) {
  constexpr std::int64_t kIn = 700;
  constexpr std::int64_t kTokens = 67;
  const std::vector<float> tensor = random_floats(kIn * kTokens, 5);
  const PassRows pass = rows_of(random_tokens(9, kTokens, 6), {});
  for (const DType dtype : kComputed) {
    for (const WeightFormat format : kFormats) {
      for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
        const auto embedded = [&](Inferring on) {
          const WeightShape shape{kIn, kTokens, layout, dtype, format};
          const View weight = on.packed(
              shape, layout == WeightLayout::out_in ? tensor : turned(tensor, kIn, kTokens));
          const View x = on.empty(9 * kIn, dtype);
          on.inference->prepare(
              {.cache = {1, 8}, .heads = 1, .rows = 9, .sequences = 1, .tokens = 9});
          on.inference->allocate_scratch();
          on.inference->begin(pass);
          on.inference->embed({shape, weight}, x);
          return on.bytes(x);
        };
        EXPECT_EQ(embedded(Inferring()), embedded(Inferring(cpu::open())))
            << name_of(dtype) << ", format " << static_cast<int>(format);
      }
    }
  }
}

TEST(GpuInferenceOps, CodesWithZeroPointsAreRefusedWithWhatToTake) {
  const Inferring gpu;
  const WeightShape shape{64, 32, WeightLayout::out_in, DType::fp32, WeightFormat::u4, 32};
  for (const auto& ask : {std::function<void()>([&] { gpu.inference->weight_bytes(shape); }),
                          std::function<void()>([&] { gpu.inference->weight_cut(shape); })}) {
    EXPECT_THAT(error_of(ask),
                HasSubstr("found u4, codes of a GPTQ or AWQ folder, expected plain weights, int8, "
                          "nf4 or q4: codes with zero points are multiplied on CPUs; take --device "
                          "cpu, or the folder from which these were made"));
  }
}

TEST(GpuInferenceOps, RowsThatOtherRanksSendAreRefused) {
  Inferring gpu;
  const View row = gpu.empty(6, DType::fp32);
  EXPECT_THAT(error_of([&] { gpu.inference->take_rows(RowList::receive_order, row, 6, row); }),
              HasSubstr("rows that other ranks send; expected one rank"));
}

// The host may be some passes ahead of the device.
TEST(GpuInferenceOps, PassesKeepTheirRowsUntilTheDeviceHasReadThem) {
  constexpr std::int64_t kWidth = 6;
  Inferring gpu;
  gpu.inference->prepare(
      {.cache = {1, 8}, .heads = 1, .rows = 4, .logit_rows = 4, .sequences = 1, .tokens = 9});
  gpu.inference->allocate_scratch();
  const Values table = random_values(50 * kWidth, 7);
  const View from = gpu.tensor(table, DType::fp32);
  std::vector<View> results;
  for (std::int32_t pass = 0; pass < 7; ++pass) {
    PassRows rows = rows_of({1, 2, 3}, {});
    rows.positions = {pass, 2 * pass + 1, 3 * pass + 2};
    rows.logit_rows = {pass + 20};
    results.push_back(gpu.empty(4 * kWidth, DType::fp32));
    gpu.inference->begin(rows);
    gpu.inference->take_rows(RowList::positions, from, kWidth, results.back());
    gpu.inference->take_rows(RowList::logit_rows, from, kWidth,
                             results.back().slice(3 * kWidth, kWidth));
  }
  for (std::int64_t pass = 0; pass < 7; ++pass) {
    const std::vector<float> found = gpu.floats(results[static_cast<std::size_t>(pass)]);
    const std::int64_t expected[] = {pass, 2 * pass + 1, 3 * pass + 2, pass + 20};
    for (std::int64_t i = 0; i < 4 * kWidth; ++i) {
      EXPECT_EQ(found[static_cast<std::size_t>(i)],
                static_cast<float>(
                    table[static_cast<std::size_t>(expected[i / kWidth] * kWidth + i % kWidth)]));
    }
  }
}

struct Heads {
  std::int64_t heads, kv_heads, width;
  std::int64_t window = 0;
};

/// Attention of a whole sequence, in passes of so many rows; fp32 (rows, heads * width).
std::vector<float> attended(Inferring& on, const Heads& h, const Values& qkv,
                            std::int64_t block_tokens, std::int64_t length) {
  const std::int64_t row_width = (h.heads + 2 * h.kv_heads) * h.width;
  const std::int64_t rows = std::ssize(qkv) / row_width;
  const CacheShape cache{h.kv_heads, h.width, block_tokens};
  std::vector<std::int32_t> blocks;  // in no order
  for (std::int64_t i = div_ceil(rows, block_tokens); i > 0; --i) {
    blocks.push_back(static_cast<std::int32_t>(i));
  }
  on.inference->prepare(
      {.cache = cache, .heads = h.heads, .rows = length, .sequences = 1, .tokens = rows});
  on.inference->allocate_scratch();
  const View layer = on.empty((std::ssize(blocks) + 1) * cache.block_bytes() / 4, DType::fp32)
                         .reinterpret(DType::u8, (std::ssize(blocks) + 1) * cache.block_bytes());
  const View all = on.tensor(qkv, DType::fp32);
  const View out = on.empty(rows * h.heads * h.width, DType::fp32);
  for (std::int64_t first = 0; first < rows; first += length) {
    const std::int64_t count = std::min(length, rows - first);
    PassRows pass = rows_of(std::vector<std::int32_t>(static_cast<std::size_t>(count)), blocks);
    for (std::int32_t& position : pass.positions) position += static_cast<std::int32_t>(first);
    pass.sequences[0].position = first;
    const CachedAttention operands{
        .cache = cache,
        .heads = h.heads,
        .layer = layer,
        .qkv = all.slice(first * row_width, count * row_width),
        .out = out.slice(first * h.heads * h.width, count * h.heads * h.width),
        .window = h.window};
    on.inference->begin(pass);
    on.inference->append(operands);
    on.inference->attend(operands);
    on.device->compute().synchronize();
  }
  return on.floats(out);
}

TEST(GpuInferenceOps, AttentionIsCloseToTheCpusAndHasTheSameBitsInAnyPassesAndBlocks) {
  constexpr std::int64_t kRows = 290;  // of three splits
  for (const Heads& h :
       {Heads{2, 2, 16}, Heads{4, 2, 14}, Heads{5, 1, 70}, Heads{18, 1, 6}, Heads{1, 1, 130},
        Heads{4, 2, 14, 1}, Heads{2, 1, 16, 40}, Heads{3, 1, 8, 128}, Heads{2, 2, 16, 150}}) {
    SCOPED_TRACE(fmt::format("{} heads of {}, window {}", h.heads, h.width, h.window));
    const std::int64_t row_width = (h.heads + 2 * h.kv_heads) * h.width;
    Values qkv = random_values(kRows * row_width, 8);
    for (double& value : qkv) value *= 3;
    Inferring cpu(cpu::open());
    const std::vector<float> expected = attended(cpu, h, qkv, 16, kRows);
    std::vector<float> first;
    for (const auto& [tokens, length] : {std::pair{16, kRows}, {32, std::int64_t{100}}, {304, 7}}) {
      Inferring gpu;
      const std::vector<float> found = attended(gpu, h, qkv, tokens, length);
      for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-5) << i;
      if (first.empty()) first = found;
      ASSERT_EQ(found, first);
    }
    // One row at a time, from where there are several splits.
    Inferring gpu;
    Values late(qkv.begin(), qkv.begin() + 131 * row_width);
    first.resize(static_cast<std::size_t>(131 * h.heads * h.width));
    ASSERT_EQ(attended(gpu, h, late, 16, 1), first);
  }
}

TEST(GpuInferenceOps, APositionThatIsNoNumberReachesNoRowWhoseWindowIsBehindIt) {
  constexpr std::int64_t kRows = 200;
  for (const std::int64_t window : {1, 21, 140}) {
    const Heads h{2, 1, 16, window};
    const std::int64_t row_width = 4 * h.width;
    Values qkv = random_values(kRows * row_width, 9);
    Inferring one;
    const std::vector<float> expected = attended(one, h, qkv, 16, kRows);
    for (std::int64_t i = 2 * h.width; i < row_width; ++i) {
      qkv[static_cast<std::size_t>(35 * row_width + i)] = std::numeric_limits<double>::quiet_NaN();
    }
    for (const std::int64_t length : {std::int64_t{1}, kRows}) {
      Inferring other;
      const std::vector<float> found = attended(other, h, qkv, 16, length);
      for (std::size_t i = 0; i < found.size(); ++i) {
        const std::int64_t row = static_cast<std::int64_t>(i) / (h.heads * h.width);
        if (row >= 35 && row < 35 + window) {
          ASSERT_TRUE(std::isnan(found[i])) << "row " << row;
        } else {
          ASSERT_EQ(found[i], expected[i]) << "row " << row << ", window of " << window;
        }
      }
    }
  }
}

TEST(GpuInferenceOps, APositionThatIsNoNumberStaysWithLaterRows) {
  const Heads h{2, 1, 16};
  constexpr std::int64_t kRows = 60;
  const std::int64_t row_width = 4 * h.width;
  Values qkv = random_values(kRows * row_width, 9);
  Inferring one;
  const std::vector<float> expected = attended(one, h, qkv, 16, kRows);
  for (std::int64_t i = 2 * h.width; i < row_width; ++i) {
    qkv[static_cast<std::size_t>(35 * row_width + i)] = std::numeric_limits<double>::quiet_NaN();
  }
  Inferring other;
  const std::vector<float> found = attended(other, h, qkv, 16, kRows);
  const auto begin = static_cast<std::ptrdiff_t>(35 * h.heads * h.width);
  EXPECT_TRUE(std::equal(found.begin(), found.begin() + begin, expected.begin()));
  EXPECT_TRUE(
      std::all_of(found.begin() + begin, found.end(), [](float v) { return std::isnan(v); }));
}

}  // namespace
}  // namespace zero::testing
