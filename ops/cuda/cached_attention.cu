// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Attention over the paged cache (Dao et al. 2023, "Flash-Decoding"): each of a block's warps
// computes the softmax of 32 positions for all queries of a tile, a position a lane; the block adds
// its warps up, and splits after each other. CUDA cores only. What a query adds up, and in which
// order, depends on positions alone.
#include <limits>

#include "ops/cuda/cache_places.h"
#include "ops/cuda/formulas.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lanes.cuh"

namespace zero::cuda {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
static_assert(kSplit == kThreads && 32 == 2 * kCacheChunk);

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
__device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / 32; }

struct Sizes {
  int queries_per_kv;
  int heads;
  int kv_heads;
  int width;
  float scale;  // of scores, for exp2
  int window;   // positions that a query sees

  /// The first position that a query at `position` sees.
  __device__ __forceinline__ int first_seen(int position) const {
    return position < window ? 0 : position + 1 - window;
  }
};

template <class T>
struct Pointers {
  const T* qkv;
  const T* cache;
  const std::int32_t* blocks;
  T* out;
  float* parts;
};

/// The largest score of some positions, and the sum of their probabilities beside it.
struct SoftmaxStatistics {
  float largest = kLowest;
  float sum = 0;
};
/// Factors of what was added up before, and of what is added.
struct Factors {
  float kept;
  float added;
};

/// Adds the statistics of a split to those of all before. A split without positions of the query
/// changes nothing; one whose scores are no numbers makes the sum none.
__device__ __forceinline__ Factors fold(SoftmaxStatistics& total, const SoftmaxStatistics& split) {
  if (split.largest == kLowest) {
    total.sum += split.sum;
    return {1, 0};
  }
  const float top = fmaxf(total.largest, split.largest);
  const Factors factors{Formulas{}.exp2(total.largest - top), Formulas{}.exp2(split.largest - top)};
  total = {top, fmaf(total.sum, factors.kept, split.sum * factors.added)};
  return factors;
}

__device__ __forceinline__ float folded(float total, const Factors& factors, float split) {
  return fmaf(total, factors.kept, split * factors.added);
}

/// A block's shared memory; heads have up to 32 * parts elements.
template <int queries, int parts>
struct Shared {
  float q[queries][32 * parts];              // scaled
  float probabilities[kWarps][queries][32];  // of the positions of a warp
  float outs[kWarps][queries][32 * parts];   // probabilities x values of a warp
  float total[queries][32 * parts];          // of all splits
  SoftmaxStatistics of_warp[kWarps][queries];
  SoftmaxStatistics of_split[queries];
  SoftmaxStatistics of_total[queries];
  float weights[kWarps][queries];
  Factors factors[queries];
  int begins[queries];  // the first position that a query reads
  int ends[queries];    // behind the last one
};

template <int queries, int parts, class T>
__device__ __forceinline__ void load_queries(const Sizes& s, const Pointers<T>& o,
                                             const AttentionTile& tile, Shared<queries, parts>& m) {
  const std::int64_t row_width = std::int64_t{s.heads + 2 * s.kv_heads} * s.width;
  for (int i = static_cast<int>(threadIdx.x); i < queries * 32 * parts; i += kThreads) {
    const int query = i / (32 * parts);
    const int column = i % (32 * parts);
    const int at = tile.query + query;
    const std::int64_t head =
        static_cast<int>(blockIdx.y) * s.queries_per_kv + at % s.queries_per_kv;
    const T* const row = o.qkv + (tile.row + at / s.queries_per_kv) * row_width + head * s.width;
    const bool inside = query < tile.queries && column < s.width;
    m.q[query][column] = inside ? as_float(row[column]) * s.scale : 0.0F;
    m.total[query][column] = 0;
  }
  if (threadIdx.x >= queries) return;
  const int query = min(static_cast<int>(threadIdx.x), tile.queries - 1);
  const int position = tile.position + (tile.query + query) / s.queries_per_kv;
  m.begins[threadIdx.x] = s.first_seen(position);
  m.ends[threadIdx.x] = position + 1;
  m.of_total[threadIdx.x] = {};
}

/// Scores of the lane's position become probabilities in shared memory, and statistics of the warp.
template <int queries, int parts>
__device__ __forceinline__ void keep_probabilities(const float (&scores)[queries], int first,
                                                   Shared<queries, parts>& m) {
#pragma unroll
  for (int r = 0; r < queries; ++r) {
    const bool seen = first + lane() >= m.begins[r] && first + lane() < m.ends[r];
    const float largest = warp_max(seen ? scores[r] : kLowest);
    const float probability = seen ? Formulas{}.exp2(scores[r] - largest) : 0.0F;
    const float sum = warp_sum(probability);
    m.probabilities[warp()][r][lane()] = probability;
    if (lane() == 0) m.of_warp[warp()][r] = {largest, sum};
  }
}

/// The warp's probabilities times the values of positions [first, first + count) of one chunk;
/// `at`: the first of these probabilities. A query reads no value that it does not see: one that is
/// no number stays with others.
template <int queries, int parts, class T>
__device__ __forceinline__ void add_values(const Sizes& s, const T* values, int at, int count,
                                           int first, const Shared<queries, parts>& m,
                                           float (&sums)[queries][parts]) {
#pragma unroll 4
  for (int j = 0; j < count; ++j) {
    float value[parts];
#pragma unroll
    for (int c = 0; c < parts; ++c) {
      const int column = lane() + 32 * c;
      value[c] = column < s.width ? as_float(values[j * s.width + column]) : 0.0F;
    }
#pragma unroll
    for (int r = 0; r < queries; ++r) {
      if (first + j < m.begins[r] || first + j >= m.ends[r]) continue;
      const float probability = m.probabilities[warp()][r][at + j];
#pragma unroll
      for (int c = 0; c < parts; ++c) sums[r][c] = fmaf(probability, value[c], sums[r][c]);
    }
  }
}

/// The softmax of 32 positions from `first` on, of those in [begin, end), by one warp.
template <int queries, int parts, class T>
__device__ __forceinline__ void attend_warp(const Sizes& s, const Pointers<T>& o,
                                            const AttentionTile& tile,
                                            const CachePlaces<kLanes<T>>& places, int first,
                                            int begin, int end, Shared<queries, parts>& m) {
  constexpr int kChunk = static_cast<int>(kCacheChunk);
  const int position = first + lane();
  float scores[queries] = {};
  std::int64_t chunk = 0;
  if (position / kChunk >= begin / kChunk && position < end) {
    const std::int32_t block = o.blocks[tile.table + places.entry(position)];
    chunk = places.chunk(block, static_cast<int>(blockIdx.y), position);
    const T* const keys = o.cache + chunk;
    const int whole = s.width / kLanes<T> * kLanes<T>;
#pragma unroll 2
    for (int i = 0; i < whole; i += kLanes<T>) {
      const Lanes<T> key = load<kLanes<T>>(keys + places.whole_key(position, i));
#pragma unroll
      for (int r = 0; r < queries; ++r) {
#pragma unroll
        for (int j = 0; j < kLanes<T>; ++j) scores[r] = fmaf(m.q[r][i + j], key.at[j], scores[r]);
      }
    }
    for (int i = whole; i < s.width; ++i) {
      const float key = as_float(keys[places.key(position, i)]);
#pragma unroll
      for (int r = 0; r < queries; ++r) scores[r] = fmaf(m.q[r][i], key, scores[r]);
    }
  }
  keep_probabilities(scores, first, m);
  __syncwarp();
  float sums[queries][parts] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t of_half = __shfl_sync(~0U, chunk, half * kChunk);
    const int from = first + half * kChunk;
    if (from + kChunk <= begin) continue;
    add_values(s, o.cache + of_half + places.value(0, 0), half * kChunk, min(kChunk, end - from),
               from, m, sums);
  }
#pragma unroll
  for (int r = 0; r < queries; ++r) {
#pragma unroll
    for (int c = 0; c < parts; ++c) m.outs[warp()][r][lane() + 32 * c] = sums[r][c];
  }
}

/// The statistics of the split of a query, and its warps' weights: a thread a query.
template <int queries, int parts>
__device__ __forceinline__ void weigh_warps(Shared<queries, parts>& m) {
  if (threadIdx.x >= queries) return;
  const unsigned r = threadIdx.x;
  float largest = kLowest;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, m.of_warp[w][r].largest);
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float weight =
        largest == kLowest ? 0.0F : Formulas{}.exp2(m.of_warp[w][r].largest - largest);
    m.weights[w][r] = weight;
    sum = fmaf(m.of_warp[w][r].sum, weight, sum);
  }
  m.of_split[r] = {largest, sum};
  m.factors[r] = fold(m.of_total[r], m.of_split[r]);
}

template <int queries, int parts>
__device__ __forceinline__ float split_of(const Shared<queries, parts>& m, int query, int column) {
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    sum = fmaf(m.outs[w][query][column], m.weights[w][query], sum);
  }
  return sum;
}

/// What is known after a split: the partial result of a tile of one split, or the sum so far.
template <int queries, int parts, class T>
__device__ __forceinline__ void end_split(const Sizes& s, const Pointers<T>& o,
                                          const AttentionTile& tile, Shared<queries, parts>& m) {
  for (int i = static_cast<int>(threadIdx.x); i < queries * 32 * parts; i += kThreads) {
    const int query = i / (32 * parts);
    const int column = i % (32 * parts);
    const float split = split_of(m, query, column);
    if (tile.split < 0) {
      m.total[query][column] = folded(m.total[query][column], m.factors[query], split);
    } else if (query < tile.queries && column < s.width) {
      const std::int64_t slot = std::int64_t{tile.parts + query} * s.kv_heads + blockIdx.y;
      float* const part = o.parts + slot * part_floats(s.width);
      part[2 + column] = split;
      if (column > 0) continue;
      part[0] = m.of_split[query].largest;
      part[1] = m.of_split[query].sum;
    }
  }
}

/// Blocks that a multiprocessor holds at least: tiles of many queries get all registers.
template <int queries>
constexpr int kBlocks = queries <= 4 ? 4 : 1;

/// blockIdx.x is the tile, blockIdx.y the key head.
template <int queries, int parts, class T>
__global__ void __launch_bounds__(kThreads, kBlocks<queries>)
    attend_tiles(Sizes s, Pointers<T> o, CachePlaces<kLanes<T>> places,
                 const AttentionTile* tiles) {
  auto& m = *shared<Shared<queries, parts>>();
  const AttentionTile tile = tiles[blockIdx.x];
  if (tile.queries == 0) return;
  const int begin = s.first_seen(tile.position + tile.query / s.queries_per_kv);
  if (tile.split >= 0 && tile.split < begin / kThreads) return;  // add_splits() reads none of it
  load_queries(s, o, tile, m);
  const int end = tile.position + (tile.query + tile.queries - 1) / s.queries_per_kv + 1;
  const int last = tile.split < 0 ? (end - 1) / kThreads : tile.split;
  const int first = tile.split < 0 ? begin / kThreads : tile.split;
  for (int split = first; split <= last; ++split) {
    __syncthreads();
    attend_warp(s, o, tile, places, split * kThreads + warp() * 32, begin, end, m);
    __syncthreads();
    weigh_warps(m);
    __syncthreads();
    end_split(s, o, tile, m);
  }
  if (tile.split >= 0) return;
  for (int i = static_cast<int>(threadIdx.x); i < queries * 32 * parts; i += kThreads) {
    const int query = i / (32 * parts);
    const int column = i % (32 * parts);
    if (query >= tile.queries || column >= s.width) continue;
    const int at = tile.query + query;
    const std::int64_t head =
        static_cast<int>(blockIdx.y) * s.queries_per_kv + at % s.queries_per_kv;
    const std::int64_t row = tile.row + at / s.queries_per_kv;
    const float inverse = 1.0F / m.of_total[query].sum;
    o.out[(row * s.heads + head) * s.width + column] = rounded<T>(m.total[query][column] * inverse);
  }
}

/// Adds up the splits of a query, in order. blockIdx.x is the query, blockIdx.y the key head; a
/// thread a column.
template <class T>
__global__ void __launch_bounds__(kMostHeadWidth)
    add_splits(Sizes s, Pointers<T> o, const SplitQuery* queries) {
  const SplitQuery query = queries[blockIdx.x];
  const auto column = static_cast<int>(threadIdx.x);
  if (query.splits == 0 || column >= s.width) return;
  SoftmaxStatistics statistics;
  float total = 0;
  for (int split = s.first_seen(query.position) / kThreads; split < query.splits; ++split) {
    const std::int64_t slot =
        std::int64_t{query.parts + split * query.stride} * s.kv_heads + blockIdx.y;
    const float* const part = o.parts + slot * part_floats(s.width);
    const Factors factors = fold(statistics, {part[0], part[1]});
    total = folded(total, factors, part[2 + column]);
  }
  const std::int64_t head = static_cast<int>(blockIdx.y) * s.queries_per_kv + query.head;
  o.out[(query.row * std::int64_t{s.heads} + head) * s.width + column] =
      rounded<T>(total * (1.0F / statistics.sum));
}

Sizes sizes(const CachedAttention& o) {
  return {narrow<int>(o.heads / o.cache.kv_heads),
          narrow<int>(o.heads),
          narrow<int>(o.cache.kv_heads),
          narrow<int>(o.cache.head_width),
          o.exp2_scale(),
          o.window == 0 ? std::numeric_limits<int>::max() : narrow<int>(o.window)};
}

/// Tiles of one size.
struct TileList {
  const AttentionTile* tiles;
  std::int64_t count;
};

template <int queries, int parts, class T>
void launch_tiles(cudaStream_t stream, const CachedAttention& o, const Pointers<T>& pointers,
                  const TileList& list) {
  launch("attend", attend_tiles<queries, parts, T>,
         {.blocks = dim3(narrow<unsigned>(list.count), narrow<unsigned>(o.cache.kv_heads)),
          .threads = kThreads,
          .shared_bytes = sizeof(Shared<queries, parts>)},
         stream, sizes(o), pointers, CachePlaces<kLanes<T>>(o.cache), list.tiles);
}

template <int parts, class T>
void attend_typed(cudaStream_t stream, const CachedAttention& o, const DevicePass& pass,
                  const AttentionScratch& scratch) {
  constexpr int kMany = parts <= 4 ? 16 : 8;
  const Pointers<T> pointers{pointer<T>(o.qkv), pointer<T>(o.layer), pass.blocks, pointer<T>(o.out),
                             scratch.parts};
  const TileList few{pass.few, pass.few_count};
  ZERO_CHECK(scratch.planner->many_queries() == kMany,
             "attend: tiles of {} queries, expected {} for heads of {} elements",
             scratch.planner->many_queries(), kMany, o.cache.head_width);
  if (scratch.planner->few_queries() == 1) {
    launch_tiles<1, parts>(stream, o, pointers, few);
  } else if (scratch.planner->few_queries() == 4) {
    launch_tiles<4, parts>(stream, o, pointers, few);
  } else {
    launch_tiles<kMany, parts>(stream, o, pointers, few);
  }
  launch_tiles<kMany, parts>(stream, o, pointers, TileList{pass.many, pass.many_count});
  launch("attend: splits", add_splits<T>,
         {.blocks = dim3(narrow<unsigned>(pass.split_count), narrow<unsigned>(o.cache.kv_heads)),
          .threads = narrow<unsigned>(round_up(o.cache.head_width, 32))},
         stream, sizes(o), pointers, pass.splits);
}

}  // namespace

void attend(cudaStream_t stream, const CachedAttention& o, const DevicePass& pass,
            const AttentionScratch& scratch) {
  with_access(o.cache.dtype, 1, {}, [&]<class T>(std::type_identity<T>, auto /*access*/) {
    if (o.cache.head_width <= 32) return attend_typed<1, T>(stream, o, pass, scratch);
    if (o.cache.head_width <= 64) return attend_typed<2, T>(stream, o, pass, scratch);
    if (o.cache.head_width <= 128) return attend_typed<4, T>(stream, o, pass, scratch);
    attend_typed<8, T>(stream, o, pass, scratch);
  });
}

}  // namespace zero::cuda
