// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/cached_attention.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "base/checked_math.h"
#include "device/cpu/dispatch.h"
#include "ops/cpu/cached_attention-inl.h"
#include "ops/cpu/cached_attention.h"
#include "ops/cpu/pair_attention.h"
#include "ops/cpu/products.h"
#include "ops/cpu/row_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

template <typename T, typename S>
inline constexpr bool kMayBePairs =
    std::is_same_v<T, bfloat16>&& std::is_same_v<S, bfloat16>&& kMostRows == PairAttention::kRows;
static_assert(PairAttention::kPositions == kKeyBlock && PairAttention::kChunk == kCacheChunk &&
              PairAttention::kRows == kTileRows);
inline bool attends_by_pairs(const CacheShape& cache) {
  return kernels_of(DType::bf16) == KernelKind::pairs &&
         cache.head_width % PairAttention::kWidths == 0;
}

// Of a tile in bf16 on processors with pairs.
template <std::int64_t rows>
PairAttention pair_attention(const CacheShape& cache, const Tile<bfloat16>& tile,
                             const TileScratch& scratch) {
  PairAttention a{.rows = rows,
                  .head_width = cache.head_width,
                  .scale = tile.scale,
                  .probabilities = scratch.probabilities,
                  .out = scratch.out};
  for (std::size_t row = 0; row < rows; ++row) {
    a.queries[row] = reinterpret_cast<const std::byte*>(tile.q[row]);
  }
  return a;
}

// One key block, from position `first` on.
template <std::int64_t rows>
void attend_by_pairs(PairAttention& a, const HeadOfCache<bfloat16>& head, Tile<bfloat16>& tile,
                     std::int64_t first, std::int64_t count) {
  a.chunks = div_ceil(count, kCacheChunk);
  for (std::int64_t chunk = 0; chunk < a.chunks; ++chunk) {
    const std::int64_t position = first + chunk * kCacheChunk;
    a.keys[chunk] = reinterpret_cast<const std::byte*>(head.keys(position));
    a.values[chunk] = reinterpret_cast<const std::byte*>(head.values(position));
  }
  score_pairs(a);
  for (std::int64_t row = 0; row < rows; ++row) {
    fold_row(tile, row, a.probabilities + row * kKeyBlock, first);
    a.opening[row] = tile.opening[static_cast<std::size_t>(row)];
    a.visible[row] = tile.visible[static_cast<std::size_t>(row)];
    a.factors[row] = tile.factors[static_cast<std::size_t>(row)];
  }
  add_pairs(a);
}

template <typename T, typename S, std::int64_t rows>
void attend_tile(const CacheShape& cache, const HeadOfCache<S>& head, Tile<T>& tile,
                 const TileScratch& scratch) {
  constexpr FloatTag d;
  const std::int64_t width = cache.head_width;
  const auto elements = static_cast<std::size_t>(width);
  const std::int64_t keys =
      1 + *std::max_element(tile.positions.begin(), tile.positions.begin() + tile.rows);
  PairAttention pairs;
  if constexpr (kMayBePairs<T, S>) {
    if (tile.by_pairs) pairs = pair_attention<rows>(cache, tile, scratch);
  }
  const std::int64_t start =
      *std::min_element(tile.starts.begin(), tile.starts.begin() + tile.rows);
  for (std::int64_t first = start / kKeyBlock * kKeyBlock; first < keys; first += kKeyBlock) {
    const std::int64_t count = std::min(kKeyBlock, keys - first);
    if constexpr (kMayBePairs<T, S>) {
      if (tile.by_pairs) {
        attend_by_pairs<rows>(pairs, head, tile, first, count);
        continue;
      }
    }
    score_keys<S, rows>(head, width, first, count, scratch);
    if constexpr (HeadOfCache<S>::kHasScales) {
      for (std::int64_t at = 0; at < count; at += kCacheChunk) {
        scale_chunk(head.key_scales(first + at), rows, scratch.probabilities + at);
      }
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      fold_row(tile, row, scratch.probabilities + row * kKeyBlock, first);
    }
    if constexpr (HeadOfCache<S>::kHasScales) {
      for (std::int64_t at = 0; at < count; at += kCacheChunk) {
        scale_chunk(head.value_scales(first + at), rows, scratch.probabilities + at);
      }
    }
    add_values<T, S, rows>(head, width, first, tile, scratch);
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto inverse = hn::Set(d, 1.0F / tile.sums[static_cast<std::size_t>(row)]);
    const float* from = scratch.out + row * width;
    T* const to = tile.out[static_cast<std::size_t>(row)];
    for_lanes(d, elements, [&](std::size_t i, auto lanes) HWY_ATTR {
      store(d, hn::Mul(load(d, from + i, lanes), inverse), to + i, lanes);
    });
  }
}

// Clears the sums; scales queries, unless pairs take them as they are.
template <typename T>
void start_tile(const CacheShape& cache, Tile<T>& tile, const TileScratch& scratch) {
  constexpr FloatTag d;
  const std::int64_t width = cache.head_width;
  const auto scale = hn::Set(d, tile.scale);
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const auto at = static_cast<std::size_t>(row);
    tile.largest[at] = -std::numeric_limits<float>::infinity();
    tile.sums[at] = 0;
    if (tile.by_pairs) continue;
    for_lanes(d, static_cast<std::size_t>(width), [&](std::size_t i, auto lanes) HWY_ATTR {
      store(d, hn::Mul(load(d, tile.q[at] + i, lanes), scale), scratch.queries + row * width + i,
            lanes);
    });
  }
  std::fill(scratch.out, scratch.out + tile.rows * width, 0.0F);
}

template <typename T, typename S>
void attend_typed(const CachedAttention& o, const AttentionRows& rows, void* memory) {
  const CacheShape& cache = o.cache;
  const std::int64_t width = cache.head_width;
  auto* const floats = static_cast<float*>(memory);
  const TileScratch scratch{floats, floats + kTileRows * width, floats + 2 * kTileRows * width};
  const HeadOfCache<S> head(o, *rows.sequence, rows.kv_head);
  const std::int64_t queries_per_kv = o.heads / cache.kv_heads;
  const std::int64_t qkv_width = (o.heads + 2 * cache.kv_heads) * width;
  const std::int64_t all = (rows.end - rows.begin) * queries_per_kv;
  const bool by_pairs = kMayBePairs<T, S> && attends_by_pairs(cache);
  for (std::int64_t first = 0; first < all;) {
    Tile<T> tile;
    tile.by_pairs = by_pairs;
    tile.scale = o.exp2_scale();
    const std::int64_t left = std::min(kMostRows, all - first);
    tile.rows = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(left)));
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::int64_t row = rows.begin + (first + i) / queries_per_kv;
      const std::int64_t query = rows.kv_head * queries_per_kv + (first + i) % queries_per_kv;
      tile.positions[at] = rows.sequence->position + row;
      tile.starts[at] = o.first_seen(tile.positions[at]);
      tile.q[at] = row_of<T>(o.qkv, rows.sequence->first + row, qkv_width) + query * width;
      tile.out[at] = row_of<T>(o.out, rows.sequence->first + row, o.heads * width) + query * width;
    }
    start_tile(cache, tile, scratch);
    switch (tile.rows) {
      case 1:
        attend_tile<T, S, 1>(cache, head, tile, scratch);
        break;
      case 2:
        attend_tile<T, S, 2>(cache, head, tile, scratch);
        break;
      case 4:
        attend_tile<T, S, 4>(cache, head, tile, scratch);
        break;
      default:
        attend_tile<T, S, kMostRows>(cache, head, tile, scratch);
    }
    first += tile.rows;
  }
}

void attend_any(const CachedAttention& o, const AttentionRows& rows, void* scratch) {
  dispatch(o.qkv.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    if (o.cache.format == CacheFormat::int8) {
      attend_typed<T, std::int8_t>(o, rows, scratch);
    } else {
      attend_typed<T, T>(o, rows, scratch);
    }
  });
}

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
HWY_EXPORT(attend_any);
HWY_EXPORT(append_any);

std::int64_t attention_scratch_bytes(const CacheShape& shape) {
  return round_up(4 * kTileRows * (2 * shape.head_width + kKeyBlock), 64);
}

void attend_rows(const CachedAttention& operands, const AttentionRows& rows, void* scratch) {
  HWY_DYNAMIC_DISPATCH(attend_any)(operands, rows, scratch);
}

void append_rows(const CachedAttention& operands, const SequenceRows& sequence, std::int64_t begin,
                 std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(append_any)(operands, sequence, begin, end);
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
