// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// Updates with moments in bf16 and in 8 bits beside a plain loop of decode, the fp32 update, and
// encode.
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/checked_math.h"
#include "optim/cpu/small_moments.h"
#include "optim/update.h"
#include "tests/only_target.h"
#include "tests/optim/case.h"

namespace zero::testing {
namespace {

struct Format {
  OptimizerConfig config;
  DType gradient;
  DType compute;
};

/// A parameter whose moments have a small format.
struct SmallState {
  State fp32;  ///< its moments are not used
  std::array<Elements, 2> moments{};
  std::array<Elements, 2> scales{};

  UpdateArguments arguments(std::int64_t begin, std::int64_t count) {
    UpdateArguments a = fp32.arguments(begin, count);
    a.elements = {.parameter = 17, .first = begin};
    for (std::size_t i = 0; i < 2; ++i) {
      a.moments[i] = moments[i].view().slice(begin, count);
      if (!scales[i].view().empty()) a.scales[i] = coded(i).slice(begin, count).scales;
    }
    a.learning_rate = 1e-2;
    a.weight_decay = 0.1;
    a.gradient_scale = 0.7F;
    return a;
  }
  CodedMoment coded(std::size_t m) {
    return {static_cast<int>(m), moments[m].view(), scales[m].view()};
  }
  friend bool operator==(const SmallState&, const SmallState&) = default;
};

SmallState small_state(std::int64_t count, const Format& format) {
  SmallState state{.fp32 = some_state(count, {format.gradient, format.compute}, 4)};
  for (std::size_t i = 0; i < 2; ++i) {
    state.moments[i] = {moment_dtype(format.config.moments), count};
    if (format.config.moments == MomentFormat::eight_bit)
      state.scales[i] = {DType::fp32, div_ceil(count, kMomentBlock)};
  }
  return state;
}

/// The moments of `state` in fp32.
void decode(SmallState& state, const OptimizerConfig& config) {
  const std::int64_t count = state.fp32.master.view().count();
  for (std::size_t m = 0; m < 2; ++m) {
    Elements& to = m == 0 ? state.fp32.moment0 : state.fp32.moment1;
    if (config.moments == MomentFormat::bf16) {
      for (std::int64_t i = 0; i < count; ++i) to.set(i, state.moments[m].get(i));
    } else {
      cpu::decode_moment(state.coded(m), static_cast<float*>(to.view().data()));
    }
  }
}

/// A value of moment `m`, not near the largest, rounded by the draw of an element
/// (optim/small_moments.inc).
float stochastically_rounded(float value, std::size_t m, std::uint32_t element, RoundingKeys keys) {
  std::uint32_t x = element ^ keys.first;
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  x ^= (x >> 16) ^ keys.second;
  const std::uint32_t random = m == 0 ? x & 0xffffU : x >> 16;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) + random) & 0xffff0000U);
}

/// Stores the moments that are in fp32.
void encode(SmallState& state, const OptimizerConfig& config, std::int64_t step, int moments) {
  const std::int64_t count = state.fp32.master.view().count();
  for (std::size_t m = 0; m < static_cast<std::size_t>(moments); ++m) {
    Elements& from = m == 0 ? state.fp32.moment0 : state.fp32.moment1;
    Elements& to = state.moments[m];
    if (config.moments == MomentFormat::bf16) {
      const RoundingKeys keys = rounding_keys(17, step, 0);
      for (std::int64_t i = 0; i < count; ++i)
        to.set(i, stochastically_rounded(from.get(i), m, static_cast<std::uint32_t>(i), keys));
    } else {
      cpu::encode_moment(static_cast<const float*>(from.view().data()), state.coded(m));
    }
  }
}

class SmallMoments : public ::testing::TestWithParam<Format> {};

std::vector<Format> formats() {
  using Kind = OptimizerConfig::Kind;
  std::vector<Format> all;
  for (const MomentFormat moments : {MomentFormat::bf16, MomentFormat::eight_bit}) {
    all.push_back({{.kind = Kind::adamw, .moments = moments}, DType::bf16, DType::bf16});
    all.push_back({{.kind = Kind::adam, .moments = moments}, DType::fp32, DType::fp32});
    all.push_back(
        {{.kind = Kind::sgd, .momentum = 0.9, .moments = moments}, DType::fp16, DType::fp16});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(OfEachKind, SmallMoments, ::testing::ValuesIn(formats()),
                         [](const auto& each) {
                           const OptimizerConfig& config = each.param.config;
                           return fmt::format("{}_{}", name_of(config.kind),
                                              name_of(config.moments));
                         });

TEST_P(SmallMoments, UpdateIsDecodeUpdateInFp32AndEncode) {
  const OptimizerConfig& config = GetParam().config;
  const auto device = cpu::open();
  const auto optimizer = make_optimizer(config, *device);
  OptimizerConfig plain = config;
  plain.moments = MomentFormat::fp32;
  const auto in_fp32 = make_optimizer(plain, *device);
  for (const std::int64_t count : {1, 255, 256, 3001}) {
    SmallState state = small_state(count, GetParam());
    SmallState expected = state;
    for (std::int64_t step = 1; step <= 4; ++step) {
      UpdateArguments a = state.arguments(0, count);
      a.step = step;
      optimizer->update(device->compute(), a);
      decode(expected, config);
      UpdateArguments e = expected.arguments(0, count);
      e.step = step;
      e.moments = {expected.fp32.moment0.view(), expected.fp32.moment1.view()};
      in_fp32->update(device->compute(), e);
      encode(expected, config, step, optimizer->moments());
      expected.fp32.moment0 = state.fp32.moment0;
      expected.fp32.moment1 = state.fp32.moment1;
      ASSERT_TRUE(state == expected) << count << " elements, step " << step;
    }
  }
}

TEST_P(SmallMoments, AnyCutThreadCountAndTargetGivesTheSameBits) {
  constexpr std::int64_t kCount = 50'021;  // several grains, and a tail
  const auto run = [&](int threads, std::int64_t cut) {
    const auto device = cpu::open({.threads = threads});
    const auto optimizer = make_optimizer(GetParam().config, *device);
    SmallState state = small_state(kCount, GetParam());
    for (std::int64_t step = 1; step <= 3; ++step) {
      for (std::int64_t begin = 0; begin < kCount; begin += cut) {
        UpdateArguments a = state.arguments(begin, std::min(cut, kCount - begin));
        a.step = step;
        optimizer->update(device->compute(), a);
      }
    }
    return state;
  };
  const SmallState expected = run(1, kCount);
  EXPECT_TRUE(run(3, kCount) == expected);
  for (const std::int64_t cut : {256, 1280, 16640}) EXPECT_TRUE(run(1, cut) == expected) << cut;
  if (GetParam().config.moments == MomentFormat::bf16) {
    EXPECT_TRUE(run(1, 777) == expected);
  }
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    EXPECT_TRUE(run(1, kCount) == expected) << hwy::TargetName(target);
  }
}

TEST(SmallMomentsRefuse, ViewsThatDoNotFit) {
  const auto device = cpu::open();
  const Format format{{.moments = MomentFormat::eight_bit}, DType::fp32, DType::fp32};
  const auto optimizer = make_optimizer(format.config, *device);
  SmallState state = small_state(300, format);
  const auto refused = [&](const UpdateArguments& a) {
    return error_of([&] { optimizer->update(device->compute(), a); });
  };
  UpdateArguments a = state.arguments(0, 300);
  a.moments[1] = state.fp32.moment1.view();
  EXPECT_EQ(refused(a), "AdamW: moment 1 is fp32; expected u8");
  a = state.arguments(0, 300);
  a.scales[0] = a.scales[0].slice(0, 1);
  EXPECT_EQ(refused(a), "AdamW: scale 0 has 1 values, expected 2: one for 256 elements");
  a = state.arguments(0, 300);
  a.elements.run = 0;
  EXPECT_EQ(refused(a), "AdamW: runs of 0 logical elements; expected 1 or more");
  const View codes = state.moments[0].view();
  const View to = state.fp32.moment0.view();
  const auto decode_error = [&](const CodedMoment& from) {
    return error_of([&] { optimizer->decode(device->compute(), from, to); });
  };
  EXPECT_EQ(decode_error({0, codes.slice(0, 299), state.scales[0].view(), 0}),
            "decode: 299 u8 for 300 values; expected as many u8");
  EXPECT_EQ(decode_error({0, codes, state.scales[0].view(), 256}),
            "decode: the first code is element 256 of its block; expected 0 to 255");
  EXPECT_EQ(decode_error({0, codes, state.scales[0].view(), 250}),
            "decode: the scale has 2 values, expected 3: one for 256 elements");
  EXPECT_EQ(error_of([] { moment_format_from_name("int8"); }),
            "moments are \"int8\"; expected fp32, bf16 or 8bit");
}

}  // namespace
}  // namespace zero::testing
