// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Scores, probabilities and sums of values of a tile of query rows over a key block of positions,
// in fp32. Included inside Highway's foreach_target mechanism, once per target.

#if defined(ZERO_INFERENCE_CPU_CACHED_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZERO_INFERENCE_CPU_CACHED_ATTENTION_INL_H_
#undef ZERO_INFERENCE_CPU_CACHED_ATTENTION_INL_H_
#else
#define ZERO_INFERENCE_CPU_CACHED_ATTENTION_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "ops/cpu/cached_attention.h"
#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
/// One thread's scratch for a tile of query rows.
struct TileScratch {
  float* queries;        // (kTileRows, head_width), scaled
  float* out;            // the same, before the division by sums
  float* probabilities;  // (kTileRows, kKeyBlock): scores, then exp(score - largest), times
                         // the scales of values if these are codes
};

/// A tile's rows and their running statistics.
template <typename T>
struct Tile {
  std::int64_t rows = 0;
  bool by_pairs = false;  // by PairAttention
  float scale = 0;        // CachedAttention::exp2_scale
  std::array<std::int64_t, kTileRows> positions{};
  std::array<const T*, kTileRows> q{};
  std::array<T*, kTileRows> out{};
  std::array<float, kTileRows> largest{};  // in units of log2
  std::array<float, kTileRows> sums{};
  std::array<std::int64_t, kTileRows> starts{};  // the first positions that rows see
  // Of the key block under way: the positions [opening, visible) that a row sees, both 0 if none,
  // and the factor of what was summed before.
  std::array<std::int64_t, kTileRows> opening{};
  std::array<std::int64_t, kTileRows> visible{};
  std::array<float, kTileRows> factors{};
};

// Elements of a plain cache, or codes without their scales.
template <class D, typename S, class Lanes>
HWY_INLINE hn::Vec<D> load_stored(D d, const S* from, Lanes lanes) {
  return load(d, from, lanes);
}
template <class D>
HWY_INLINE hn::Vec<D> load_stored(D d, const std::int8_t* from, AllLanes) {
  const hn::Rebind<std::int8_t, D> d8;
  return hn::ConvertTo(d, hn::PromoteTo(hn::RebindToSigned<D>(), hn::LoadU(d8, from)));
}
template <class D>
HWY_INLINE hn::Vec<D> load_stored(D d, const std::int8_t* from, SomeLanes lanes) {
  HWY_ALIGN std::int8_t padded[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, from, lanes.count);
  return load_stored(d, padded, AllLanes{});
}

// Multiplies the scores or probabilities of a chunk of all rows of a tile by its scales.
HWY_INLINE void scale_chunk(const float* scales, std::int64_t rows, float* values) {
  const hn::CappedTag<float, kCacheChunk> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t j = 0; j < kCacheChunk; j += lanes) {
    const auto scale = hn::LoadU(d, scales + j);
    for (std::int64_t row = 0; row < rows; ++row) {
      float* const to = values + row * kKeyBlock + j;
      hn::StoreU(hn::Mul(hn::LoadU(d, to), scale), d, to);
    }
  }
}

#if HWY_HAVE_SCALABLE

constexpr std::int64_t kMostRows = 4;

template <typename S, std::int64_t rows>
void score_keys(const HeadOfCache<S>& head, std::int64_t head_width, std::int64_t first,
                std::int64_t count, const TileScratch& scratch) {
  const hn::CappedTag<float, 1> d;
  for (std::int64_t at = 0; at < count; ++at) {
    const S* const keys = head.keys(first + at) + at % kCacheChunk;
    for (std::int64_t row = 0; row < rows; ++row) {
      float sum = 0;
      for (std::int64_t i = 0; i < head_width; ++i) {
        const float key = hn::GetLane(load_stored(d, keys + i * kCacheChunk, AllLanes{}));
        sum += scratch.queries[row * head_width + i] * key;
      }
      scratch.probabilities[row * kKeyBlock + at] = sum;
    }
  }
}

#else

// Sums that are added to side by side: enough that none waits for the one before it, and as many as
// there are registers for.
constexpr std::int64_t kSums = HWY_TARGET <= HWY_AVX3 ? 16 : 8;
constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));
constexpr std::int64_t kMostRows = kLanes < kCacheChunk ? 4 : kTileRows;

template <typename S, std::int64_t rows, std::int64_t chunks>
void score_chunks(const HeadOfCache<S>& head, std::int64_t head_width, std::int64_t first,
                  std::int64_t at, const TileScratch& scratch) {
  constexpr FloatTag d;
  constexpr std::int64_t vectors = chunks * kCacheChunk / kLanes;
  const S* keys[vectors];
  hn::Vec<FloatTag> sums[rows][vectors];
#pragma GCC unroll 16
  for (std::int64_t j = 0; j < vectors; ++j) {
    const std::int64_t position = j * kLanes;
    keys[j] = head.keys(first + at + position) + position % kCacheChunk;
#pragma GCC unroll 8
    for (std::int64_t row = 0; row < rows; ++row) sums[row][j] = hn::Zero(d);
  }
  for (std::int64_t i = 0; i < head_width; ++i) {
    hn::Vec<FloatTag> key[vectors];
#pragma GCC unroll 16
    for (std::int64_t j = 0; j < vectors; ++j) {
      key[j] = load_stored(d, keys[j] + i * kCacheChunk, AllLanes{});
    }
#pragma GCC unroll 8
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto query = hn::Set(d, scratch.queries[row * head_width + i]);
#pragma GCC unroll 16
      for (std::int64_t j = 0; j < vectors; ++j) {
        sums[row][j] = hn::MulAdd(query, key[j], sums[row][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (std::int64_t row = 0; row < rows; ++row) {
#pragma GCC unroll 16
    for (std::int64_t j = 0; j < vectors; ++j) {
      hn::StoreU(sums[row][j], d, scratch.probabilities + row * kKeyBlock + at + j * kLanes);
    }
  }
}

template <typename S, std::int64_t rows>
void score_keys(const HeadOfCache<S>& head, std::int64_t head_width, std::int64_t first,
                std::int64_t count, const TileScratch& scratch) {
  constexpr std::int64_t chunks =
      std::clamp<std::int64_t>(kSums * kLanes / (rows * kCacheChunk), 1, kKeyBlock / kCacheChunk);
  std::int64_t at = 0;
  for (; at + chunks * kCacheChunk <= count; at += chunks * kCacheChunk) {
    score_chunks<S, rows, chunks>(head, head_width, first, at, scratch);
  }
  for (; at < count; at += kCacheChunk) {
    score_chunks<S, rows, 1>(head, head_width, first, at, scratch);
  }
}

#endif

// Scores of a row become probabilities: those of positions that it does not see 0.
template <typename T>
void fold_row(Tile<T>& tile, std::int64_t row, float* probabilities, std::int64_t first) {
  constexpr FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto at = static_cast<std::size_t>(row);
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  std::int64_t visible = std::clamp<std::int64_t>(tile.positions[at] + 1 - first, 0, kKeyBlock);
  std::int64_t opening = std::clamp<std::int64_t>(tile.starts[at] - first, 0, kKeyBlock);
  if (opening >= visible) opening = visible = 0;
  std::fill(probabilities, probabilities + opening, kLowest);
  std::fill(probabilities + visible, probabilities + kKeyBlock, kLowest);
  tile.opening[at] = opening;
  tile.visible[at] = visible;
  tile.factors[at] = 1;
  if (visible == 0) return;
  auto most = hn::Set(d, tile.largest[at]);
  for (std::int64_t j = 0; j < kKeyBlock; j += lanes)
    most = hn::Max(most, hn::LoadU(d, probabilities + j));
  const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
  tile.factors[at] = hn::GetLane(exp2(d, hn::Set(d, tile.largest[at] - largest)));
  auto sum = hn::Zero(d);
  for (std::int64_t j = 0; j < kKeyBlock; j += lanes) {
    const auto probability = exp2(d, hn::Sub(hn::LoadU(d, probabilities + j), hn::Set(d, largest)));
    hn::StoreU(probability, d, probabilities + j);
    sum = hn::Add(sum, probability);
  }
  tile.largest[at] = largest;
  tile.sums[at] = tile.sums[at] * tile.factors[at] + sum_lanes(d, sum);
}

#if HWY_HAVE_SCALABLE

template <typename T, typename S, std::int64_t rows>
void add_values(const HeadOfCache<S>& head, std::int64_t head_width, std::int64_t first,
                const Tile<T>& tile, const TileScratch& scratch) {
  const hn::CappedTag<float, 1> d;
  for (std::int64_t row = 0; row < rows; ++row) {
    float* const out = scratch.out + row * head_width;
    for (std::int64_t i = 0; i < head_width; ++i) {
      out[i] *= tile.factors[static_cast<std::size_t>(row)];
      for (std::int64_t j = tile.opening[static_cast<std::size_t>(row)];
           j < tile.visible[static_cast<std::size_t>(row)]; ++j) {
        const S* const values = head.values(first + j) + j % kCacheChunk * head_width;
        const float value = hn::GetLane(load_stored(d, values + i, AllLanes{}));
        out[i] += scratch.probabilities[row * kKeyBlock + j] * value;
      }
    }
  }
}

#else

// The positions of a key block that some row of a tile sees, and among them those that all see.
struct SeenPositions {
  std::int64_t begin, all_begin, all_end, end;

  template <typename T>
  SeenPositions(const Tile<T>& tile, std::int64_t rows) {
    const auto [opened, all_opened] =
        std::minmax_element(tile.opening.begin(), tile.opening.begin() + rows);
    const auto [least, most] =
        std::minmax_element(tile.visible.begin(), tile.visible.begin() + rows);
    begin = *opened;
    end = *most;
    all_begin = std::min(*all_opened, end);
    all_end = std::max(all_begin, *least);
  }
};

// out = out * factor + probabilities x values of some vectors of a head's elements, for all rows of
// a tile. A row reads no value that it does not see: one that is no number stays with other rows.
template <typename T, typename S, std::int64_t rows, std::int64_t vectors, class Lanes>
void add_values(const HeadOfCache<S>& head, std::int64_t head_width, std::int64_t first,
                const Tile<T>& tile, const SeenPositions& seen, const TileScratch& scratch,
                std::int64_t i, Lanes lanes) {
  constexpr FloatTag d;
  hn::Vec<FloatTag> sums[rows][vectors];
#pragma GCC unroll 8
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto factor = hn::Set(d, tile.factors[static_cast<std::size_t>(row)]);
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < vectors; ++v) {
      sums[row][v] =
          hn::Mul(load(d, scratch.out + row * head_width + i + v * kLanes, lanes), factor);
    }
  }
  // Adds the values of positions [begin, end), for the rows that know them.
  const auto add = [&](std::int64_t begin, std::int64_t end, auto knows) HWY_ATTR {
    for (std::int64_t j = begin; j < end;) {
      const S* from = head.values(first + j) + j % kCacheChunk * head_width + i;
      const std::int64_t stop = std::min(j / kCacheChunk * kCacheChunk + kCacheChunk, end);
      for (; j < stop; ++j, from += head_width) {
        hn::Vec<FloatTag> value[vectors];
#pragma GCC unroll 4
        for (std::int64_t v = 0; v < vectors; ++v) {
          value[v] = load_stored(d, from + v * kLanes, lanes);
        }
#pragma GCC unroll 8
        for (std::int64_t row = 0; row < rows; ++row) {
          if (!knows(row, j)) continue;
          const auto probability = hn::Set(d, scratch.probabilities[row * kKeyBlock + j]);
#pragma GCC unroll 4
          for (std::int64_t v = 0; v < vectors; ++v) {
            sums[row][v] = hn::MulAdd(probability, value[v], sums[row][v]);
          }
        }
      }
    }
  };
  const auto by_row = [&](std::int64_t row, std::int64_t j) {
    const auto at = static_cast<std::size_t>(row);
    return j >= tile.opening[at] && j < tile.visible[at];
  };
  add(seen.begin, seen.all_begin, by_row);
  add(seen.all_begin, seen.all_end, [](std::int64_t, std::int64_t) { return true; });
  add(seen.all_end, seen.end, by_row);
#pragma GCC unroll 8
  for (std::int64_t row = 0; row < rows; ++row) {
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < vectors; ++v) {
      store(d, sums[row][v], scratch.out + row * head_width + i + v * kLanes, lanes);
    }
  }
}

template <typename T, typename S, std::int64_t rows>
void add_values(const HeadOfCache<S>& head, std::int64_t head_width, std::int64_t first,
                const Tile<T>& tile, const TileScratch& scratch) {
  constexpr std::int64_t vectors = std::clamp<std::int64_t>(kSums / rows, 1, 4);
  const SeenPositions seen(tile, rows);
  std::int64_t i = 0;
  for (; i + vectors * kLanes <= head_width; i += vectors * kLanes) {
    add_values<T, S, rows, vectors>(head, head_width, first, tile, seen, scratch, i, AllLanes{});
  }
  for_lanes(FloatTag(), static_cast<std::size_t>(head_width - i),
            [&](std::size_t at, auto lanes) HWY_ATTR {
              add_values<T, S, rows, 1>(head, head_width, first, tile, seen, scratch,
                                        i + static_cast<std::int64_t>(at), lanes);
            });
}

#endif

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ZERO_INFERENCE_CPU_CACHED_ATTENTION_INL_H_
