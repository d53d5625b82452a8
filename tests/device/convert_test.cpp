// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "device/cpu/primitives.h"
#include "device/device.h"
#include "tests/errors.h"

namespace zero {
namespace {

template <typename Half>
std::vector<Half> every_half() {
  std::vector<Half> all(0x10000);
  for (std::uint32_t i = 0; i < 0x10000U; ++i) all[i].bits = static_cast<std::uint16_t>(i);
  return all;
}

/// Floats of every kind: random bits, and around every half's ties.
std::vector<float> many_floats() {
  std::mt19937 random(1);
  std::vector<float> values;
  for (int i = 0; i < 200'000; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  }
  for (const float16 half : every_half<float16>()) {
    const float value = to_float(half);
    const float next = to_float(float16{static_cast<std::uint16_t>(half.bits + 1)});
    for (const float near : {(value + next) / 2, std::nextafter((value + next) / 2, 1e38F)}) {
      values.push_back(near);
    }
  }
  return values;
}

bfloat16 round_to(float value, bfloat16 /*type*/) { return to_bfloat16(value); }
float16 round_to(float value, float16 /*type*/) { return to_float16(value); }

template <typename Half>
class Conversions : public ::testing::Test {};
using Halves = ::testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(Conversions, Halves);

TYPED_TEST(Conversions, ExpandEveryValueAsTheScalarDoes) {
  auto halves = every_half<TypeParam>();
  std::vector<float> floats(halves.size());
  cpu::convert(View::of(std::span(halves)), View::of(std::span(floats)));
  for (std::size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(to_float(halves[i])),
              std::bit_cast<std::uint32_t>(floats[i]))
        << i;
  }
}

TYPED_TEST(Conversions, RoundEveryKindOfValueAsTheScalarDoes) {
  auto floats = many_floats();
  std::vector<TypeParam> halves(floats.size());
  cpu::convert(View::of(std::span(floats)), View::of(std::span(halves)), 3);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(round_to(floats[i], TypeParam{}).bits, halves[i].bits) << floats[i];
  }
}

TYPED_TEST(Conversions, WorkInPlaceWhereElementsShrink) {
  for (const int threads : {1, 4}) {
    auto floats = many_floats();
    const auto original = floats;
    const View from = View::of(std::span(floats));
    cpu::convert(from, from.reinterpret(dtype_of<TypeParam>, from.count()), threads);
    for (std::size_t i = 0; i < original.size(); ++i) {
      TypeParam half;
      std::memcpy(&half, reinterpret_cast<std::byte*>(floats.data()) + i * sizeof half,
                  sizeof half);
      ASSERT_EQ(round_to(original[i], TypeParam{}).bits, half.bits) << i;
    }
  }
}

TYPED_TEST(Conversions, TakeAnySizeAtAnyElementAndWriteNothingElse) {
  auto halves = every_half<TypeParam>();
  std::vector<float> floats(200);
  const View source = View::of(std::span(halves));
  for (std::int64_t count = 0; count < 70; ++count) {
    const std::int64_t shift = count % 5;
    std::ranges::fill(floats, -7.0F);
    cpu::convert(source.slice(0x3f00 + shift, count),
                 View::of(std::span(floats)).slice(shift, count));
    for (std::int64_t i = 0; i < 200; ++i) {
      const bool inside = i >= shift && i < shift + count;
      const float expected =
          inside ? to_float(halves[static_cast<std::size_t>(0x3f00 + i)]) : -7.0F;
      ASSERT_EQ(expected, floats[static_cast<std::size_t>(i)]);
    }
  }
}

TEST(Conversion, BetweenTheHalvesGoesThroughFp32) {
  auto from = every_half<bfloat16>();
  std::vector<float16> to(from.size());
  cpu::convert(View::of(std::span(from)), View::of(std::span(to)));
  for (std::size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(to_float16(to_float(from[i])).bits, to[i].bits);
  }
}

TEST(Conversion, OfEqualDtypesCopiesAnyDtype) {
  std::vector<std::int64_t> from(100'000);
  std::iota(from.begin(), from.end(), 5);
  std::vector<std::int64_t> to(from.size());
  const auto device = cpu::open({.threads = 4});
  device->kernels().convert(device->compute(), View::of(std::span(from)), View::of(std::span(to)));
  device->compute().synchronize();
  EXPECT_EQ(from, to);
}

TEST(Conversion, RefusesWhatItCannotDo) {
  std::vector<float> floats(8);
  std::vector<std::int32_t> integers(8);
  const View view = View::of(std::span(floats));
  const View halves = view.reinterpret(DType::bf16, 8);
  const auto device = cpu::open();
  const auto convert = [&](View from, View to) {
    return error_of([&] { device->kernels().convert(device->compute(), from, to); });
  };
  EXPECT_EQ("convert: source has 8 elements, destination 7", convert(view, view.slice(0, 7)));
  EXPECT_EQ("convert: i32 to fp32; expected equal dtypes, or two of fp32, bf16, fp16",
            convert(View::of(std::span(integers)), view));
  EXPECT_EQ(
      "convert: bf16 source and fp32 destination overlap; expected no overlap, or the same start "
      "with destination elements not larger",
      convert(halves, view));
  EXPECT_NE("no error", convert(view.slice(0, 4), view.slice(1, 4)));
  EXPECT_EQ("no error", convert(view, view));
  EXPECT_EQ("no error", convert(view.slice(0, 4), view.slice(4, 4)));
}

TEST(Fills, ZeroAndPoisonEveryByteOnAnyStream) {
  const auto device = cpu::open({.threads = 2});
  for (Stream* stream : {&device->compute(), &device->communication()}) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16, DType::fp64}) {
      const Buffer buffer = device->allocate(40'001, dtype, MemoryClass::other, "x");
      device->kernels().poison(*stream, buffer.view());
      stream->synchronize();
      const auto* bytes = static_cast<const unsigned char*>(buffer.view().data());
      for (std::int64_t i = 0; i < buffer.view().bytes(); ++i) ASSERT_EQ(0xff, bytes[i]);
      device->kernels().zero(*stream, buffer.view());
      stream->synchronize();
      for (std::int64_t i = 0; i < buffer.view().bytes(); ++i) ASSERT_EQ(0, bytes[i]);
    }
  }
}

TEST(Fills, GenerateAsksForEveryElementOnceWhateverTheThreads) {
  for (const int threads : {1, 3}) {
    const auto device = cpu::open({.threads = threads});
    for (const std::int64_t count : {0, 5, 4096, 20'000}) {
      const Buffer buffer = device->allocate(count, DType::fp32, MemoryClass::other, "values");
      device->kernels().zero(device->compute(), buffer.view());
      device->kernels().generate(device->compute(), buffer.view(),
                                 [](std::int64_t begin, std::span<float> out) {
                                   for (float& value : out) value += static_cast<float>(begin++);
                                 });
      device->compute().synchronize();
      const std::span<float> values = buffer.view().as<float>();
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[static_cast<std::size_t>(i)], static_cast<float>(i));
      }
    }
  }
}

TEST(Fills, GenerateRefusesOtherDtypes) {
  const auto device = cpu::open();
  const Buffer buffer = device->allocate(4, DType::bf16, MemoryClass::other, "values");
  EXPECT_EQ(error_of([&] { device->kernels().generate(device->compute(), buffer.view(), {}); }),
            "generate: values are fp32, the destination is bf16");
}

TEST(Fills, PoisonIsNanForFloatsAndLargeForIntegers) {
  std::vector<float> floats(3);
  std::vector<double> doubles(3);
  std::vector<float16> halves(3);
  std::vector<std::int32_t> integers(3);
  cpu::poison(View::of(std::span(floats)));
  cpu::poison(View::of(std::span(doubles)));
  cpu::poison(View::of(std::span(halves)));
  cpu::poison(View::of(std::span(integers)));
  EXPECT_TRUE(std::isnan(floats[2]));
  EXPECT_TRUE(std::isnan(doubles[2]));
  EXPECT_TRUE(std::isnan(to_float(halves[2])));
  EXPECT_EQ(0x7f7f7f7f, integers[2]);
}

}  // namespace
}  // namespace zero
