// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Layer norm, and RMS norm as a layer norm without mean and bias: one block per row, with the row's
// packs in registers if there are at most as many as threads; backward then takes kRowChunk rows a
// block, for the sums over them.
#include "model/cuda/lanes.cuh"
#include "model/cuda/row_kernels.h"

namespace zero::cuda {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kChunkThreads = 512;  // of backward's, whose threads hold more

/// fp32 figures per row: mean (layer norm) and reciprocal deviation.
template <NormKind kind>
inline constexpr int kStatistics = kind == NormKind::layer ? 2 : 1;

template <NormKind kind>
struct Statistics {
  float mean;
  float scale;

  __device__ __forceinline__ static Statistics of_row(const float* statistics, std::int64_t row) {
    const float* at = statistics + row * kStatistics<kind>;
    if constexpr (kind == NormKind::layer) return {at[0], at[1]};
    return {0.0F, at[0]};
  }
  __device__ __forceinline__ void keep(float* statistics, std::int64_t row) const {
    float* at = statistics + row * kStatistics<kind>;
    if constexpr (kind == NormKind::layer) at[0] = mean;
    at[kStatistics<kind> - 1] = scale;
  }
  __device__ __forceinline__ float normed(float x) const {
    return (kind == NormKind::layer ? x - mean : x) * scale;
  }
};

template <class T>
struct Forward {
  int columns;
  const T* x;
  const T* delta;  // may be null, like sum
  T* sum;
  const T* weight;
  const T* bias;  // null: RMS norm
  T* y;
  float* statistics;
  float epsilon;
};

/// Pack `pack` of the row to normalise: x, or x + delta rounded, which is also stored to sum.
template <Access access, class T>
__device__ __forceinline__ Lanes<T> residual(const Forward<T>& o, std::int64_t at, int left) {
  Lanes<T> values = read<access>(o.x + at, left);
  if (o.delta == nullptr) return values;
  const Lanes<T> delta = read<access>(o.delta + at, left);
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) {
    values.at[i] = as_float(rounded<T>(values.at[i] + delta.at[i]));
  }
  write<access>(values, o.sum + at, left);
  return values;
}

template <NormKind kind, Access access, class T>
__device__ __forceinline__ void normalise(const Forward<T>& o, const Statistics<kind>& statistics,
                                          const Lanes<T>& x, std::int64_t at, int column) {
  const int left = o.columns - column;
  const Lanes<T> weight = read<access>(o.weight + column, left);
  Lanes<T> bias{};
  if constexpr (kind == NormKind::layer) bias = read<access>(o.bias + column, left);
  Lanes<T> y;
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) {
    const float normed = statistics.normed(x.at[i]);
    y.at[i] =
        kind == NormKind::layer ? fmaf(normed, weight.at[i], bias.at[i]) : normed * weight.at[i];
  }
  write<access>(y, o.y + at, left);
}

template <NormKind kind, Access access, class T>
__global__ void __launch_bounds__(kMostThreads) norm_forward_rows(Forward<T> o) {
  auto* const place = shared<float>();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * o.columns;
  const T* const source = o.delta == nullptr ? o.x : o.sum;
  const int own = static_cast<int>(threadIdx.x) * kLanes<T>;
  const int step = static_cast<int>(blockDim.x) * kLanes<T>;
  Lanes<T> held{};
  float total = 0;
  for (int column = own; column < o.columns; column += step) {
    const Lanes<T> x = residual<access>(o, row + column, o.columns - column);
    if (column == own) held = x;
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      total = kind == NormKind::layer ? total + x.at[i] : fmaf(x.at[i], x.at[i], total);
    }
  }
  const float inverse = 1.0F / static_cast<float>(o.columns);
  Statistics<kind> statistics{0.0F, 0.0F};
  const auto pack = [&](int column) {
    return column == own ? held : read<access>(source + row + column, o.columns - column);
  };
  if constexpr (kind == NormKind::layer) {
    statistics.mean = block_sum(total, place) * inverse;
    total = 0;
    for (int column = own; column < o.columns; column += step) {
      const Lanes<T> x = pack(column);
#pragma unroll
      for (int i = 0; i < kLanes<T>; ++i) {
        const float off = column + i < o.columns ? x.at[i] - statistics.mean : 0.0F;
        total = fmaf(off, off, total);
      }
    }
  }
  const float variance = block_sum(total, place + 32) * inverse + o.epsilon;
  statistics.scale = 1.0F / sqrtf(variance);
  if (threadIdx.x == 0) statistics.keep(o.statistics, blockIdx.x);
  for (int column = own; column < o.columns; column += step) {
    normalise<kind, access>(o, statistics, pack(column), row + column, column);
  }
}

/// On a row_grid.
template <NormKind kind, Access access, class T>
__global__ void __launch_bounds__(256) norm_apply_rows(Forward<T> o) {
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  if (column >= o.columns) return;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * o.columns + column;
  const Lanes<T> x = read<access>(o.x + at, o.columns - column);
  normalise<kind, access>(o, Statistics<kind>::of_row(o.statistics, blockIdx.x), x, at,
                          static_cast<int>(column));
}

template <class T>
struct Backward {
  int columns;
  std::int64_t rows;
  const T* x;
  const float* statistics;
  const T* weight;
  const T* dy;
  T* dx;
  float* partials;  // (chunks, columns of dweight, then of dbias)
};

/// Computes dx and, in o.partials, dweight and dbias of kRowChunk rows, added in order: one block
/// for each chunk of rows, of which a thread reads the same pack of each row. For rows of at most
/// kChunkThreads packs.
template <NormKind kind, Access access, class T>
__global__ void __launch_bounds__(kChunkThreads) norm_backward_chunks(Backward<T> o) {
  auto* const places = shared<float>();
  const int column = static_cast<int>(threadIdx.x) * kLanes<T>;
  const int left = o.columns - column;
  const bool inside = left > 0;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * Ops::kRowChunk;
  const std::int64_t end = begin + Ops::kRowChunk < o.rows ? begin + Ops::kRowChunk : o.rows;
  const float inverse = 1.0F / static_cast<float>(o.columns);
  Lanes<T> weight{};
  if (inside) weight = read<access>(o.weight + column, left);
  Lanes<T> dweight{};
  Lanes<T> dbias{};
  for (std::int64_t row = begin; row < end; ++row) {
    const auto statistics = Statistics<kind>::of_row(o.statistics, row);
    const std::int64_t at = row * o.columns + column;
    Lanes<T> normed{};
    Lanes<T> scaled{};
    Lanes<T> dx{};
    if (inside) {
      normed = read<access>(o.x + at, left);
      scaled = read<access>(o.dy + at, left);
      dx = read<access>(o.dx + at, left);
    }
    float sum = 0;
    float product = 0;
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      normed.at[i] = statistics.normed(normed.at[i]);
      dweight.at[i] = fmaf(scaled.at[i], normed.at[i], dweight.at[i]);
      if constexpr (kind == NormKind::layer) dbias.at[i] += scaled.at[i];
      scaled.at[i] *= weight.at[i];  // after the row's end: 0
      sum += scaled.at[i];
      product = fmaf(scaled.at[i], normed.at[i], product);
    }
    // Rows take turns at two places: no thread is two rows ahead of another.
    float* const place = places + (row - begin) % 2 * 64;
    const float mean_scaled = kind == NormKind::layer ? block_sum(sum, place) * inverse : 0.0F;
    const float mean_product = block_sum(product, place + 32) * inverse;
    if (!inside) continue;
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      const float off = kind == NormKind::layer ? scaled.at[i] - mean_scaled : scaled.at[i];
      dx.at[i] = fmaf(fmaf(-normed.at[i], mean_product, off), statistics.scale, dx.at[i]);
    }
    write<access>(dx, o.dx + at, left);
  }
  if (!inside) return;
  float* const partials = o.partials + blockIdx.x * std::int64_t{kStatistics<kind>} * o.columns;
  write<access>(dweight, partials + column, left);
  if constexpr (kind == NormKind::layer) write<access>(dbias, partials + o.columns + column, left);
}

/// Computes dx of wider rows: one block per row.
template <NormKind kind, Access access, class T>
__global__ void __launch_bounds__(kMostThreads) norm_backward_rows(Backward<T> o) {
  auto* const place = shared<float>();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * o.columns;
  const auto statistics = Statistics<kind>::of_row(o.statistics, blockIdx.x);
  const int own = static_cast<int>(threadIdx.x) * kLanes<T>;
  const int step = static_cast<int>(blockDim.x) * kLanes<T>;
  struct Pack {
    Lanes<T> normed, scaled;
  };
  const auto read_pack = [&](int column) {
    const int left = o.columns - column;
    Pack pack{read<access>(o.x + row + column, left), read<access>(o.dy + row + column, left)};
    const Lanes<T> weight = read<access>(o.weight + column, left);
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      pack.normed.at[i] = statistics.normed(pack.normed.at[i]);
      pack.scaled.at[i] *= weight.at[i];  // after the row's end: 0
    }
    return pack;
  };
  Pack held{};
  float sum = 0;
  float product = 0;
  for (int column = own; column < o.columns; column += step) {
    const Pack pack = read_pack(column);
    if (column == own) held = pack;
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      sum += pack.scaled.at[i];
      product = fmaf(pack.scaled.at[i], pack.normed.at[i], product);
    }
  }
  const float inverse = 1.0F / static_cast<float>(o.columns);
  const float mean_scaled = kind == NormKind::layer ? block_sum(sum, place) * inverse : 0.0F;
  const float mean_product = block_sum(product, place + 32) * inverse;
  for (int column = own; column < o.columns; column += step) {
    const Pack pack = column == own ? held : read_pack(column);
    Lanes<T> dx = read<access>(o.dx + row + column, o.columns - column);
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      const float scaled =
          kind == NormKind::layer ? pack.scaled.at[i] - mean_scaled : pack.scaled.at[i];
      const float inner = fmaf(-pack.normed.at[i], mean_product, scaled);
      dx.at[i] = fmaf(inner, statistics.scale, dx.at[i]);
    }
    write<access>(dx, o.dx + row + column, o.columns - column);
  }
}

/// Their dweight and dbias, of kRowChunk rows; on a row_grid of chunks.
template <NormKind kind, Access access, class T>
__global__ void __launch_bounds__(128) norm_partials(Backward<T> o) {
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  if (column >= o.columns) return;
  const std::int64_t left = o.columns - column;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * Ops::kRowChunk;
  const std::int64_t end = begin + Ops::kRowChunk < o.rows ? begin + Ops::kRowChunk : o.rows;
  Lanes<T> dweight{};
  Lanes<T> dbias{};
#pragma unroll 4
  for (std::int64_t row = begin; row < end; ++row) {
    const auto statistics = Statistics<kind>::of_row(o.statistics, row);
    const Lanes<T> x = read<access>(o.x + row * o.columns + column, left);
    const Lanes<T> dy = read<access>(o.dy + row * o.columns + column, left);
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      dweight.at[i] = fmaf(dy.at[i], statistics.normed(x.at[i]), dweight.at[i]);
      if constexpr (kind == NormKind::layer) dbias.at[i] += dy.at[i];
    }
  }
  float* const partials = o.partials + blockIdx.x * std::int64_t{kStatistics<kind>} * o.columns;
  write<access>(dweight, partials + column, left);
  if constexpr (kind == NormKind::layer) write<access>(dbias, partials + o.columns + column, left);
}

template <class T>
Forward<T> typed(const MatrixShape& s, const NormForward& o) {
  return {narrow<int>(s.columns),
          pointer<T>(o.x),
          pointer<T>(o.delta),
          pointer<T>(o.sum),
          pointer<T>(o.weight),
          pointer<T>(o.bias),
          pointer<T>(o.y),
          pointer<float>(o.statistics),
          o.epsilon};
}

template <NormKind kind>
void forward(cudaStream_t stream, const MatrixShape& s, const NormForward& o) {
  with_access(s.dtype, s.columns, {o.x, o.delta, o.sum, o.weight, o.bias, o.y},
              [&]<class T, class A>(std::type_identity<T>, A) {
                const std::int64_t packs = div_ceil(s.columns, kLanes<T>);
                launch("norm_forward", norm_forward_rows<kind, A::value, T>,
                       {.blocks = dim3(narrow<unsigned>(s.rows)),
                        .threads = threads_for(packs, kMostThreads),
                        .shared_bytes = block_bytes(2)},
                       stream, typed<T>(s, o));
              });
}

template <NormKind kind>
void apply(cudaStream_t stream, const MatrixShape& s, const NormForward& o) {
  with_access(s.dtype, s.columns, {o.x, o.weight, o.bias, o.y},
              [&]<class T, class A>(std::type_identity<T>, A) {
                launch("norm_apply", norm_apply_rows<kind, A::value, T>,
                       row_grid(s.rows, div_ceil(s.columns, kLanes<T>)), stream, typed<T>(s, o));
              });
}

template <NormKind kind>
void backward(cudaStream_t stream, const MatrixShape& s, const NormBackward& o, float* partials) {
  const std::int64_t chunks = div_ceil(s.rows, Ops::kRowChunk);
  with_access(s.dtype, s.columns, {o.x, o.weight, o.dy, o.dx},
              [&]<class T, class A>(std::type_identity<T>, A) {
                const Backward<T> operands{narrow<int>(s.columns), s.rows,
                                           pointer<T>(o.x),        pointer<float>(o.statistics),
                                           pointer<T>(o.weight),   pointer<T>(o.dy),
                                           pointer<T>(o.dx),       partials};
                const std::int64_t packs = div_ceil(s.columns, kLanes<T>);
                if (packs <= kChunkThreads) {
                  return launch("norm_backward", norm_backward_chunks<kind, A::value, T>,
                                {.blocks = dim3(narrow<unsigned>(chunks)),
                                 .threads = threads_for(packs, kChunkThreads),
                                 .shared_bytes = block_bytes(4)},
                                stream, operands);
                }
                launch("norm_partials", norm_partials<kind, A::value, T>,
                       row_grid(chunks, packs, 128), stream, operands);
                launch("norm_backward", norm_backward_rows<kind, A::value, T>,
                       {.blocks = dim3(narrow<unsigned>(s.rows)),
                        .threads = threads_for(packs, kMostThreads),
                        .shared_bytes = block_bytes(2)},
                       stream, operands);
              });
  fold_partials(stream, chunks, partials, o.dweight, o.dbias);
}

}  // namespace

void norm_forward(cudaStream_t stream, const MatrixShape& shape, const NormForward& o) {
  const bool layer = o.kind() == NormKind::layer;
  (layer ? forward<NormKind::layer> : forward<NormKind::rms>)(stream, shape, o);
}

void norm_apply(cudaStream_t stream, const MatrixShape& shape, const NormForward& o) {
  const bool layer = o.kind() == NormKind::layer;
  (layer ? apply<NormKind::layer> : apply<NormKind::rms>)(stream, shape, o);
}

void norm_backward(cudaStream_t stream, const MatrixShape& shape, const NormBackward& o,
                   float* partials) {
  const bool layer = o.kind() == NormKind::layer;
  (layer ? backward<NormKind::layer> : backward<NormKind::rms>)(stream, shape, o, partials);
}

}  // namespace zero::cuda
