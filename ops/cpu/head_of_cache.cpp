// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/head_of_cache.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "device/cpu/dispatch.h"
#include "ops/cpu/head_of_cache.h"
#include "ops/cpu/row_of.h"
#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

// The scale of a key or value. Magnitudes are compared as integers, among which infinities and NaNs
// are the largest: the same on all instruction sets.
template <typename T>
float scale_of(const T* from, std::int64_t width) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  auto most = hn::Zero(di);
  for_lanes(d, static_cast<std::size_t>(width), [&](std::size_t i, auto lanes) HWY_ATTR {
    const auto bits = hn::BitCast(di, load(d, from + i, lanes));
    most = hn::Max(most, hn::And(bits, hn::Set(di, 0x7fffffff)));
  });
  const float largest = hn::GetLane(hn::BitCast(d, hn::MaxOfLanes(di, most)));
  if (!(largest <= std::numeric_limits<float>::max())) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return largest / 127;
}

// Writes codes `stride` apart, rounded half to even, and returns their scale. Without one that is
// above 0, which some subnormal vectors lack, codes are 0.
template <std::int64_t stride, typename T>
float quantize(const T* from, std::int64_t width, std::int8_t* to) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::int8_t, decltype(d)> d8;
  HWY_ALIGN std::int8_t codes[HWY_MAX_BYTES / sizeof(float)];
  const float scale = scale_of(from, width);
  if (!(scale > 0)) {
    for (std::int64_t i = 0; i < width; ++i) to[i * stride] = 0;
    return scale;
  }
  for_lanes(d, static_cast<std::size_t>(width), [&](std::size_t i, auto lanes) HWY_ATTR {
    // Beyond 127 where the scale is subnormal, and so coarse.
    const auto quotient = hn::Div(load(d, from + i, lanes), hn::Set(d, scale));
    const auto code = hn::Max(hn::Set(d, -127), hn::Min(quotient, hn::Set(d, 127)));
    hn::Store(hn::DemoteTo(d8, hn::NearestInt(code)), d8, codes);
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t count = std::min(static_cast<std::int64_t>(hn::Lanes(d)), width - at);
    for (std::int64_t j = 0; j < count; ++j) to[(at + j) * stride] = codes[j];
  });
  return scale;
}

template <typename T>
void append_codes(const CachedAttention& o, const SequenceRows& sequence, std::int64_t row,
                  const T* k, const T* v) {
  const std::int64_t width = o.cache.head_width;
  const std::int64_t position = sequence.position + row;
  const std::int64_t at = position % kCacheChunk;
  for (std::int64_t head = 0; head < o.cache.kv_heads; ++head, k += width, v += width) {
    const HeadOfCache<std::int8_t> of(o, sequence, head);
    of.key_scales(position)[at] = quantize<kCacheChunk>(k, width, of.keys(position) + at);
    of.value_scales(position)[at] = quantize<1>(v, width, of.values(position) + at * width);
  }
}

template <typename T>
void append_elements(const CachedAttention& o, const SequenceRows& sequence, std::int64_t row,
                     const T* k, const T* v) {
  const std::int64_t width = o.cache.head_width;
  const std::int64_t position = sequence.position + row;
  const std::int64_t at = position % kCacheChunk;
  for (std::int64_t head = 0; head < o.cache.kv_heads; ++head, k += width, v += width) {
    const HeadOfCache<T> of(o, sequence, head);
    T* const keys = of.keys(position) + at;
    for (std::int64_t i = 0; i < width; ++i) keys[i * kCacheChunk] = k[i];
    std::copy(v, v + width, of.values(position) + at * width);
  }
}

void append_any(const CachedAttention& o, const SequenceRows& sequence, std::int64_t begin,
                std::int64_t end) {
  const std::int64_t width = o.cache.head_width;
  const std::int64_t qkv_width = (o.heads + 2 * o.cache.kv_heads) * width;
  dispatch(o.qkv.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (std::int64_t row = begin; row < end; ++row) {
      const T* const k = row_of<T>(o.qkv, sequence.first + row, qkv_width) + o.heads * width;
      const T* const v = k + o.cache.kv_heads * width;
      if (o.cache.format == CacheFormat::int8) {
        append_codes(o, sequence, row, k, v);
      } else {
        append_elements(o, sequence, row, k, v);
      }
    }
  });
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
HWY_EXPORT(append_any);

void append_rows(const CachedAttention& operands, const SequenceRows& sequence, std::int64_t begin,
                 std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(append_any)(operands, sequence, begin, end);
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
