// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Causal attention by tiles of queries and keys (Dao et al. 2022), for shapes that cuDNN lacks:
// fp32 arithmetic on CUDA cores. Backward has two passes: over keys for dq, over queries for dk and
// dv.
#include <limits>

#include "ops/cuda/attention_tiles.cuh"

namespace zero::cuda {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr int kMostHeadWidth = 256;

template <int parts>
constexpr unsigned tile_bytes(int tiles, int scores) {
  return 4U *
         static_cast<unsigned>(kTileRows * (tiles * kTileStride<parts> + scores * kScoreStride));
}

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
__device__ __forceinline__ int own_first() { return static_cast<int>(threadIdx.x) / 32 * kOwnRows; }

/// Blocks of late queries read the most keys: they start first.
__device__ __forceinline__ int query_tile() {
  return static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTileRows;
}

/// Blocks of a tile that a multiprocessor holds at least: as many as leave registers for all
/// values.
template <int parts>
constexpr int kTileBlocks = parts <= 2 ? 4 : 1;

template <int parts, class T>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks<parts>)
    attention_forward(AttentionSizes s, AttentionPointers<T> o) {
  auto* const queries = shared<float>();
  float* const keys = queries + kTileRows * kTileStride<parts>;
  float* const values = keys + kTileRows * kTileStride<parts>;
  float* const probabilities = values + kTileRows * kTileStride<parts>;
  const int head = static_cast<int>(blockIdx.y);
  const std::int64_t row = std::int64_t{blockIdx.z} * s.sequence;
  const int first = query_tile();
  load_tile<parts>(s, o.qkv + s.in_qkv(row, 0, head), s.qkv_width, first, queries);
  OwnRows<parts> sums{};
  float largest[kOwnRows];
  float totals[kOwnRows];  // of the lane's keys
#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) {
    largest[r] = kLowest;
    totals[r] = 0;
  }
  const float to_log2 = s.scale * kLog2E;
  for (int key = s.first_key(first); key <= first; key += kTileRows) {
    __syncthreads();
    load_tile<parts>(s, o.qkv + s.in_qkv(row, 1, head / s.queries_per_kv), s.qkv_width, key, keys);
    load_tile<parts>(s, o.qkv + s.in_qkv(row, 2, head / s.queries_per_kv), s.qkv_width, key,
                     values);
    __syncthreads();
    float scores[kOwnRows];
    multiply_rows<parts>(queries, keys, scores);
#pragma unroll
    for (int r = 0; r < kOwnRows; ++r) {
      const int query = first + own_first() + r;
      const bool seen = s.sees(query, key + lane()) && key + lane() < s.sequence;
      const float score = seen ? scores[r] : kLowest;
      const float most = fmaxf(largest[r], warp_max(score));
      const float top = most == kLowest ? 0.0F : most;  // keys before the query's window alone
      const float probability = Formulas{}.exp2(fmaf(score, to_log2, -top * to_log2));
      const float kept = Formulas{}.exp2((largest[r] - top) * to_log2);
      totals[r] = fmaf(totals[r], kept, probability);
      largest[r] = most;
#pragma unroll
      for (int c = 0; c < parts; ++c) sums.at[r][c] *= kept;
      probabilities[(own_first() + r) * kScoreStride + lane()] = probability;
    }
    __syncwarp();
    add_product<parts>(probabilities, values, sums);
  }
  float inverse[kOwnRows];
#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) {
    const int query = first + own_first() + r;
    const float total = warp_sum(totals[r]);
    inverse[r] = 1.0F / total;
    if (lane() == 0 && query < s.sequence) {
      o.logsumexp[s.in_sums(static_cast<int>(blockIdx.z), head, query)] =
          largest[r] * s.scale + logf(total);
    }
  }
  store_rows<parts>(s, sums, inverse, first + own_first(), o.out + s.in_out(row, head),
                    std::int64_t{s.heads} * s.head_width);
}

/// One warp per row of a head.
template <class T>
__global__ void __launch_bounds__(kTileThreads)
    attention_deltas(AttentionSizes s, std::int64_t rows, AttentionPointers<T> o) {
  const std::int64_t item = std::int64_t{blockIdx.x} * kTileWarps + threadIdx.x / 32;
  if (item >= rows * s.heads) return;
  float sum = 0;
  for (int d = lane(); d < s.head_width; d += 32) {
    const std::int64_t at = item * s.head_width + d;
    sum = fmaf(as_float(o.dout[at]), as_float(o.out[at]), sum);
  }
  sum = warp_sum(sum);
  const std::int64_t row = item / s.heads;
  const auto batch = static_cast<int>(row / s.sequence);
  const auto position = static_cast<int>(row % s.sequence);
  if (lane() == 0) o.deltas[s.in_sums(batch, static_cast<int>(item % s.heads), position)] = sum;
}

struct Gradient {
  float probability;
  float dscore;
};

__device__ __forceinline__ Gradient gradient_of(const AttentionSizes& s, float score,
                                                float dprobability, float log_sum, float delta) {
  const float probability = Formulas{}.exp2(fmaf(score, s.scale * kLog2E, -log_sum * kLog2E));
  return {probability, probability * (dprobability - delta) * s.scale};
}

template <int parts, class T>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks<parts>)
    attention_dq(AttentionSizes s, AttentionPointers<T> o) {
  auto* const queries = shared<float>();
  float* const douts = queries + kTileRows * kTileStride<parts>;
  float* const keys = douts + kTileRows * kTileStride<parts>;
  float* const values = keys + kTileRows * kTileStride<parts>;
  float* const dscores = values + kTileRows * kTileStride<parts>;
  const int head = static_cast<int>(blockIdx.y);
  const std::int64_t row = std::int64_t{blockIdx.z} * s.sequence;
  const int first = query_tile();
  load_tile<parts>(s, o.qkv + s.in_qkv(row, 0, head), s.qkv_width, first, queries);
  load_tile<parts>(s, o.dout + s.in_out(row, head), std::int64_t{s.heads} * s.head_width, first,
                   douts);
  float logsumexp[kOwnRows];
  float deltas[kOwnRows];
  float ones[kOwnRows];
#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) {
    const int query = first + own_first() + r;
    const std::int64_t at = s.in_sums(static_cast<int>(blockIdx.z), head, query);
    logsumexp[r] = query < s.sequence ? o.logsumexp[at] : 0.0F;
    deltas[r] = query < s.sequence ? o.deltas[at] : 0.0F;
    ones[r] = 1;
  }
  OwnRows<parts> sums{};
  for (int key = s.first_key(first); key <= first; key += kTileRows) {
    __syncthreads();
    load_tile<parts>(s, o.qkv + s.in_qkv(row, 1, head / s.queries_per_kv), s.qkv_width, key, keys);
    load_tile<parts>(s, o.qkv + s.in_qkv(row, 2, head / s.queries_per_kv), s.qkv_width, key,
                     values);
    __syncthreads();
    float scores[kOwnRows];
    float dprobabilities[kOwnRows];
    multiply_rows<parts>(queries, keys, scores);
    multiply_rows<parts>(douts, values, dprobabilities);
#pragma unroll
    for (int r = 0; r < kOwnRows; ++r) {
      const bool seen = s.sees(first + own_first() + r, key + lane());
      const Gradient gradient =
          gradient_of(s, scores[r], dprobabilities[r], logsumexp[r], deltas[r]);
      dscores[(own_first() + r) * kScoreStride + lane()] = seen ? gradient.dscore : 0.0F;
    }
    __syncwarp();
    add_product<parts>(dscores, keys, sums);
  }
  store_rows<parts>(s, sums, ones, first + own_first(), o.dqkv + s.in_qkv(row, 0, head),
                    s.qkv_width);
}

/// blockIdx.y is a key head: its query heads follow one another.
template <int parts, class T>
__global__ void __launch_bounds__(kTileThreads, 1)
    attention_dkv(AttentionSizes s, AttentionPointers<T> o) {
  auto* const keys = shared<float>();
  float* const values = keys + kTileRows * kTileStride<parts>;
  float* const queries = values + kTileRows * kTileStride<parts>;
  float* const douts = queries + kTileRows * kTileStride<parts>;
  float* const probabilities = douts + kTileRows * kTileStride<parts>;
  float* const dscores = probabilities + kTileRows * kScoreStride;
  const int key_head = static_cast<int>(blockIdx.y);
  const std::int64_t row = std::int64_t{blockIdx.z} * s.sequence;
  const int first = static_cast<int>(blockIdx.x) * kTileRows;
  load_tile<parts>(s, o.qkv + s.in_qkv(row, 1, key_head), s.qkv_width, first, keys);
  load_tile<parts>(s, o.qkv + s.in_qkv(row, 2, key_head), s.qkv_width, first, values);
  OwnRows<parts> dk{};
  OwnRows<parts> dv{};
  for (int head = key_head * s.queries_per_kv; head < (key_head + 1) * s.queries_per_kv; ++head) {
    for (int query = first; query < s.end_of_queries(first); query += kTileRows) {
      __syncthreads();
      load_tile<parts>(s, o.qkv + s.in_qkv(row, 0, head), s.qkv_width, query, queries);
      load_tile<parts>(s, o.dout + s.in_out(row, head), std::int64_t{s.heads} * s.head_width, query,
                       douts);
      __syncthreads();
      const int own = query + lane();
      const std::int64_t at = s.in_sums(static_cast<int>(blockIdx.z), head, own);
      const float log_sum = own < s.sequence ? o.logsumexp[at] : 0.0F;
      const float delta = own < s.sequence ? o.deltas[at] : 0.0F;
      float scores[kOwnRows];
      float dprobabilities[kOwnRows];
      multiply_rows<parts>(keys, queries, scores);
      multiply_rows<parts>(values, douts, dprobabilities);
#pragma unroll
      for (int r = 0; r < kOwnRows; ++r) {
        const bool seen = s.sees(own, first + own_first() + r) && own < s.sequence;
        const Gradient gradient = gradient_of(s, scores[r], dprobabilities[r], log_sum, delta);
        const int place = (own_first() + r) * kScoreStride + lane();
        probabilities[place] = seen ? gradient.probability : 0.0F;
        dscores[place] = seen ? gradient.dscore : 0.0F;
      }
      __syncwarp();
      add_product<parts>(probabilities, douts, dv);
      add_product<parts>(dscores, queries, dk);
    }
  }
  float ones[kOwnRows];
#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) ones[r] = 1;
  store_rows<parts>(s, dk, ones, first + own_first(), o.dqkv + s.in_qkv(row, 1, key_head),
                    s.qkv_width);
  store_rows<parts>(s, dv, ones, first + own_first(), o.dqkv + s.in_qkv(row, 2, key_head),
                    s.qkv_width);
}

AttentionSizes sizes(const AttentionShape& s) {
  return {narrow<int>(s.sequence),   narrow<int>(s.heads), narrow<int>(s.heads / s.key_heads()),
          narrow<int>(s.head_width), s.qkv_width(),        s.score_scale(),
          narrow<int>(s.seen())};
}

template <class T>
AttentionPointers<T> pointers(const AttentionOperands& o) {
  return {pointer<T>(o.qkv),  pointer<T>(o.out),  pointer<float>(o.logsumexp),
          pointer<T>(o.dout), pointer<T>(o.dqkv), static_cast<float*>(o.scratch)};
}

Grid grid_of(const AttentionShape& s, std::int64_t heads, unsigned bytes) {
  return {.blocks = dim3(narrow<unsigned>(div_ceil(s.sequence, kTileRows)), narrow<unsigned>(heads),
                         narrow<unsigned>(s.batch)),
          .threads = kTileThreads,
          .shared_bytes = bytes};
}

/// Calls body(type, parts): heads have up to 32 * parts elements.
template <class Body>
void with_parts(const AttentionShape& s, const Body& body) {
  const auto typed = [&]<class T>(std::type_identity<T> type) {
    if (s.head_width <= 32) return body(type, std::integral_constant<int, 1>{});
    if (s.head_width <= 64) return body(type, std::integral_constant<int, 2>{});
    if (s.head_width <= 128) return body(type, std::integral_constant<int, 4>{});
    body(type, std::integral_constant<int, 8>{});
  };
  if (s.dtype == DType::bf16) {
    typed(std::type_identity<bfloat16>{});
  } else if (s.dtype == DType::fp16) {
    typed(std::type_identity<float16>{});
  } else {
    typed(std::type_identity<float>{});
  }
}

class PlainAttention final : public Attention {
 public:
  std::string refusal(const AttentionShape& s) const override {
    if (s.head_width <= kMostHeadWidth) return {};
    return fmt::format("heads of {} elements, expected {} at most", s.head_width, kMostHeadWidth);
  }
  void prepare(const AttentionShape& /*shape*/) override {}
  std::int64_t scratch_bytes(const AttentionShape& s) const override {
    return 4 * s.batch * s.heads * s.sequence;
  }
  void forward(cudaStream_t stream, const AttentionShape& s, const AttentionOperands& o) override {
    with_parts(
        s, [&]<class T, int parts>(std::type_identity<T>, std::integral_constant<int, parts>) {
          launch("attention_forward", attention_forward<parts, T>,
                 grid_of(s, s.heads, tile_bytes<parts>(3, 1)), stream, sizes(s), pointers<T>(o));
        });
  }
  void backward(cudaStream_t stream, const AttentionShape& s, const AttentionOperands& o) override {
    with_parts(s, [&]<class T, int parts>(std::type_identity<T>,
                                          std::integral_constant<int, parts>) {
      const std::int64_t rows = s.batch * s.sequence;
      launch("attention_backward: deltas", attention_deltas<T>,
             {.blocks = dim3(narrow<unsigned>(div_ceil(rows * s.heads, kTileWarps))),
              .threads = kTileThreads},
             stream, sizes(s), rows, pointers<T>(o));
      launch("attention_backward: dq", attention_dq<parts, T>,
             grid_of(s, s.heads, tile_bytes<parts>(4, 1)), stream, sizes(s), pointers<T>(o));
      launch("attention_backward: dk, dv", attention_dkv<parts, T>,
             grid_of(s, s.key_heads(), tile_bytes<parts>(4, 2)), stream, sizes(s), pointers<T>(o));
    });
  }
};

}  // namespace

std::unique_ptr<Attention> make_plain_attention() { return std::make_unique<PlainAttention>(); }

}  // namespace zero::cuda
