// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// RMS norms of the heads of q and k, in rows of q, k and v. Forward: a warp or a part of one for
// each head. Backward: a block for each head and chunk of rows, whose sums over its rows are then
// added, head after head.
#include <algorithm>
#include <bit>

#include "ops/cuda/lanes.cuh"
#include "ops/cuda/norm_statistics.cuh"
#include "ops/cuda/row_kernels.h"

namespace zero::cuda {
namespace {

constexpr int kThreads = 256;       // of a block of forward
constexpr int kMostThreads = 1024;  // of a block of backward: the packs of a head

struct Heads {
  int queries;
  int normed;  // queries and keys
  int width;
  std::int64_t row_width;  // of q, k and v
};

template <class T>
struct Forward {
  Heads heads;
  int last;   // heads of a row up to here are written
  int lanes;  // for each head, a power of two
  const T* x;
  const T* query_weight;
  const T* key_weight;
  T* y;
  float* statistics;  // may be null
  float epsilon;
};

/// The sum over `lanes` neighbouring lanes, a power of two, returned in each.
__device__ __forceinline__ float sum_of_lanes(float value, int lanes) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) {
    const float beside = __shfl_xor_sync(~0U, value, other);
    if (other < lanes) value += beside;
  }
  return value;
}

/// blockIdx.x: the row; blockIdx.y: kThreads / o.lanes of its heads. Heads of v are copied.
template <NormKind kind, Access access, class T>
__global__ void __launch_bounds__(kThreads) head_norm_rows(Forward<T> o) {
  const Heads& s = o.heads;
  const auto lanes = static_cast<unsigned>(o.lanes);
  const int head = static_cast<int>((blockIdx.y * kThreads + threadIdx.x) / lanes);
  const bool normed = head < s.normed;
  const std::int64_t at = blockIdx.x * s.row_width + std::int64_t{head} * s.width;
  const int own = static_cast<int>(threadIdx.x % lanes) * kLanes<T>;
  const int end = head < o.last ? s.width : 0;
  const int step = o.lanes * kLanes<T>;
  const Lanes<T> held = own < end ? read<access>(o.x + at + own, end - own) : Lanes<T>{};
  const auto pack = [&](int column) {
    return column == own ? held : read<access>(o.x + at + column, end - column);
  };
  float squares = 0;
  for (int column = own; normed && column < end; column += step) {
    const Lanes<T> x = pack(column);
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) squares = fmaf(x.at[i], x.at[i], squares);
  }
  const float mean = sum_of_lanes(squares, o.lanes) * (1.0F / static_cast<float>(s.width));
  const float scale = 1.0F / sqrtf(mean + o.epsilon);
  if (o.statistics != nullptr && normed && own == 0) {
    o.statistics[static_cast<std::int64_t>(blockIdx.x) * s.normed + head] = scale;
  }
  const T* const weights = head < s.queries ? o.query_weight : o.key_weight;
  for (int column = own; column < end; column += step) {
    Lanes<T> y = pack(column);
    if (normed) {
      Lanes<T> weight = read<access>(weights + column, end - column);
      complete_weight<kind>(weight);
#pragma unroll
      for (int i = 0; i < kLanes<T>; ++i) y.at[i] = y.at[i] * scale * weight.at[i];
    }
    write<access>(y, o.y + at + column, end - column);
  }
}

template <class T>
struct Backward {
  Heads heads;
  std::int64_t rows;
  const T* x;
  const float* statistics;
  const T* query_weight;
  const T* key_weight;
  T* dy;
  float* partials;  // (chunks, normed heads, head width)
};

/// blockIdx.x: the chunk of rows; blockIdx.y: the head; a thread for each pack of the head.
template <NormKind kind, Access access, class T>
__global__ void __launch_bounds__(kMostThreads) head_norm_backward_chunks(Backward<T> o) {
  auto* const places = shared<float>();
  const Heads& s = o.heads;
  const int head = static_cast<int>(blockIdx.y);
  const int column = static_cast<int>(threadIdx.x) * kLanes<T>;
  const int left = s.width - column;
  const bool inside = left > 0;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * Ops::kRowChunk;
  const std::int64_t end = begin + Ops::kRowChunk < o.rows ? begin + Ops::kRowChunk : o.rows;
  const float inverse = 1.0F / static_cast<float>(s.width);
  Lanes<T> weight{};
  if (inside) {
    weight = read<access>((head < s.queries ? o.query_weight : o.key_weight) + column, left);
    complete_weight<kind>(weight);
  }
  Lanes<T> dweight{};
#pragma unroll 2
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * s.row_width + std::int64_t{head} * s.width + column;
    const float scale = o.statistics[row * s.normed + head];
    Lanes<T> normed{};
    Lanes<T> scaled{};
    if (inside) {
      normed = read<access>(o.x + at, left);
      scaled = read<access>(o.dy + at, left);
    }
    float product = 0;
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      normed.at[i] *= scale;
      dweight.at[i] = fmaf(scaled.at[i], normed.at[i], dweight.at[i]);
      scaled.at[i] *= weight.at[i];  // after the head's end: 0
      product = fmaf(scaled.at[i], normed.at[i], product);
    }
    // Rows take turns at two places: no thread is two rows ahead of another.
    const float mean = block_sum(product, places + (row - begin) % 2 * 32) * inverse;
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      scaled.at[i] = fmaf(-normed.at[i], mean, scaled.at[i]) * scale;
    }
    if (inside) write<access>(scaled, o.dy + at, left);
  }
  if (!inside) return;
  const std::int64_t of_head = std::int64_t{blockIdx.x} * s.normed + head;
  write<access>(dweight, o.partials + of_head * s.width + column, left);
}

/// sums (chunks, 2, head width): over the heads of q, and over those of k, in order. blockIdx.x:
/// the chunk; blockIdx.y: q or k.
__global__ void __launch_bounds__(256) head_norm_sums(Heads s, const float* partials, float* sums) {
  const int begin = blockIdx.y == 0 ? 0 : s.queries;
  const int end = blockIdx.y == 0 ? s.queries : s.normed;
  const float* const from = partials + std::int64_t{blockIdx.x} * s.normed * s.width;
  for (int column = static_cast<int>(threadIdx.x); column < s.width;
       column += static_cast<int>(blockDim.x)) {
    float sum = 0;
#pragma unroll 8
    for (int head = begin; head < end; ++head) {
      sum += from[std::int64_t{head} * s.width + column];
    }
    sums[(std::int64_t{blockIdx.x} * 2 + blockIdx.y) * s.width + column] = sum;
  }
}

Heads heads_of(const HeadNormShape& s) {
  return {narrow<int>(s.heads), narrow<int>(s.normed_heads()), narrow<int>(s.head_width),
          s.qkv_width()};
}

template <NormKind kind>
void forward(cudaStream_t stream, const HeadNormShape& s, const HeadNormForward& o) {
  const std::int64_t last = s.normed_heads() + (o.x.data() == o.y.data() ? 0 : s.kv_heads);
  with_access(
      s.dtype, s.head_width, {o.x, o.query_weight, o.key_weight, o.y},
      [&]<class T, class A>(std::type_identity<T>, A) {
        const auto packs = static_cast<std::uint64_t>(div_ceil(s.head_width, kLanes<T>));
        const auto lanes = std::min<std::int64_t>(32, narrow<std::int64_t>(std::bit_ceil(packs)));
        launch("head_norm_forward", head_norm_rows<kind, A::value, T>,
               {.blocks = dim3(narrow<unsigned>(s.rows),
                               narrow<unsigned>(div_ceil(last * lanes, kThreads))),
                .threads = kThreads},
               stream,
               Forward<T>{heads_of(s), narrow<int>(last), narrow<int>(lanes), pointer<T>(o.x),
                          pointer<T>(o.query_weight), pointer<T>(o.key_weight), pointer<T>(o.y),
                          pointer<float>(o.statistics), o.epsilon});
      });
}

template <NormKind kind>
void backward(cudaStream_t stream, const HeadNormShape& s, const HeadNormBackward& o,
              float* partials) {
  const auto chunks = narrow<unsigned>(div_ceil(s.rows, Ops::kRowChunk));
  with_access(s.dtype, s.head_width, {o.x, o.query_weight, o.key_weight, o.dy},
              [&]<class T, class A>(std::type_identity<T>, A) {
                const std::int64_t packs = div_ceil(s.head_width, kLanes<T>);
                ZERO_CHECK(packs <= kMostThreads,
                           "head_norm_backward: heads of {} elements, expected {} at most",
                           s.head_width, kMostThreads * kLanes<T>);
                launch("head_norm_backward", head_norm_backward_chunks<kind, A::value, T>,
                       {.blocks = dim3(chunks, narrow<unsigned>(s.normed_heads())),
                        .threads = threads_for(packs, kMostThreads),
                        .shared_bytes = block_bytes(2)},
                       stream,
                       Backward<T>{heads_of(s), s.rows, pointer<T>(o.x),
                                   pointer<float>(o.statistics), pointer<T>(o.query_weight),
                                   pointer<T>(o.key_weight), pointer<T>(o.dy), partials});
              });
}

}  // namespace

void head_norm_forward(cudaStream_t stream, const HeadNormShape& s, const HeadNormForward& o) {
  (o.plus_one ? forward<NormKind::rms_plus_one> : forward<NormKind::rms>)(stream, s, o);
}

std::int64_t head_norm_floats(const HeadNormShape& s) {
  return partial_floats(s.rows, (s.normed_heads() + 2) * s.head_width);
}

void head_norm_backward(cudaStream_t stream, const HeadNormShape& s, const HeadNormBackward& o,
                        float* partials) {
  const std::int64_t chunks = div_ceil(s.rows, Ops::kRowChunk);
  float* const sums = partials + chunks * s.normed_heads() * s.head_width;
  (o.plus_one ? backward<NormKind::rms_plus_one> : backward<NormKind::rms>)(stream, s, o, partials);
  launch("head_norm_sums", head_norm_sums,
         {.blocks = dim3(narrow<unsigned>(chunks), 2), .threads = 256}, stream, heads_of(s),
         partials, sums);
  fold_partials(stream, chunks, sums, o.dquery, o.dkey);
}

}  // namespace zero::cuda
