// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/cpu/moment_codec.cpp"
#include <hwy/foreach_target.h>
// Highway requires this include after foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "optim/cpu/moment_codec.h"
#include "optim/cpu/moment_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

template <class Moment>
void decode_whole(const std::uint8_t* codes, const float* scales, std::int64_t blocks, float* out) {
  const codec::D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < blocks * kMomentBlock; i += lanes) {
    const auto scale = hn::Set(d, scales[i / kMomentBlock]);
    hn::StoreU(codec::decoded<Moment>(codes + i, scale), d, out + i);
  }
}

/// Whole blocks.
void decode_blocks(int moment, const std::uint8_t* codes, const float* scales, std::int64_t blocks,
                   float* out) {
  if (moment == 0) return decode_whole<codec::FirstMoment>(codes, scales, blocks, out);
  decode_whole<codec::SecondMoment>(codes, scales, blocks, out);
}

void encode_blocks(int moment, const float* values, std::int64_t blocks, std::uint8_t* codes,
                   float* scales) {
  if (moment == 0) return codec::encode_whole<codec::FirstMoment>(values, blocks, codes, scales);
  codec::encode_whole<codec::SecondMoment>(values, blocks, codes, scales);
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {

HWY_EXPORT(decode_blocks);
HWY_EXPORT(encode_blocks);

void decode_moment(const CodedMoment& from, float* out) {
  const auto* codes = static_cast<const std::uint8_t*>(from.codes.data());
  const auto* scales = static_cast<const float*>(from.scales.data());
  std::int64_t count = from.codes.count();
  const auto decode_part = [&](std::int64_t begin, std::int64_t length) {
    std::uint8_t padded[kMomentBlock] = {};
    float values[kMomentBlock];
    std::memcpy(padded, codes, static_cast<std::size_t>(length));
    HWY_DYNAMIC_DISPATCH(decode_blocks)(from.moment, padded, scales, 1, values);
    std::memcpy(out, values, static_cast<std::size_t>(length) * sizeof(float));
    codes += length;
    out += length;
    scales += (begin + length) / kMomentBlock;
    count -= length;
  };
  if (from.phase > 0 && count > 0)
    decode_part(from.phase, std::min(count, kMomentBlock - from.phase));
  const std::int64_t blocks = count / kMomentBlock;
  HWY_DYNAMIC_DISPATCH(decode_blocks)(from.moment, codes, scales, blocks, out);
  codes += blocks * kMomentBlock;
  out += blocks * kMomentBlock;
  scales += blocks;
  count -= blocks * kMomentBlock;
  if (count > 0) decode_part(0, count);
}

void encode_moment(const float* values, const CodedMoment& to) {
  auto* const codes = static_cast<std::uint8_t*>(to.codes.data());
  auto* const scales = static_cast<float*>(to.scales.data());
  const std::int64_t count = to.codes.count();
  const std::int64_t blocks = count / kMomentBlock;
  HWY_DYNAMIC_DISPATCH(encode_blocks)(to.moment, values, blocks, codes, scales);
  const auto left = static_cast<std::size_t>(count % kMomentBlock);
  if (left == 0) return;
  float padded[kMomentBlock] = {};
  std::uint8_t some[kMomentBlock];
  std::memcpy(padded, values + blocks * kMomentBlock, left * sizeof(float));
  HWY_DYNAMIC_DISPATCH(encode_blocks)(to.moment, padded, 1, some, scales + blocks);
  std::memcpy(codes + blocks * kMomentBlock, some, left);
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
