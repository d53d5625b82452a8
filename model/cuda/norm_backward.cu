// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Backward of layer norm and RMS norm. Rows of at most kChunkThreads packs: a block takes kRowChunk
// rows, for the sums over them, and reads each row once, some rows ahead. Wider rows: one block per
// row, and the sums by kernels of their own.
#include "model/cuda/lanes.cuh"
#include "model/cuda/norm_statistics.cuh"
#include "model/cuda/row_kernels.h"

namespace zero::cuda {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kChunkThreads = 512;  // of blocks whose threads hold several rows

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

constexpr int kAhead = 2;  // rows that a thread of backward has asked memory for

/// A thread's pack of a row, as it lies in memory, and the row's statistics.
template <NormKind kind, class T>
struct RowPack {
  Packed<kLanes<T>, T> x, dy, dx;
  Statistics<kind> statistics;
};

/// A thread's part of a chunk of rows: the same pack of each.
template <NormKind kind, Access access, class T>
struct ChunkColumns {
  const Backward<T>& o;
  int column;
  int left;  // columns from `column` on
  Lanes<T> weight{};
  Lanes<T> dweight{};
  Lanes<T> dbias{};

  __device__ __forceinline__ bool inside() const { return left > 0; }
  __device__ __forceinline__ RowPack<kind, T> read_row(std::int64_t row) const {
    const auto statistics = Statistics<kind>::of_row(o.statistics, row);
    if (!inside()) {
      const auto none = load_packed_first<kLanes<T>>(o.x, 0);
      return {none, none, none, statistics};
    }
    const std::int64_t at = row * o.columns + column;
    return {read_packed<access>(o.x + at, left), read_packed<access>(o.dy + at, left),
            read_packed<access>(o.dx + at, left), statistics};
  }
  /// Adds the row to dweight and dbias, and writes its dx; all threads of the block call it.
  /// `place`: 64 floats.
  __device__ __forceinline__ void take_row(const RowPack<kind, T>& pack, std::int64_t row,
                                           float* place) {
    Lanes<T> normed = pack.x.floats();
    Lanes<T> scaled = pack.dy.floats();
    float sum = 0;
    float product = 0;
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      normed.at[i] = pack.statistics.normed(normed.at[i]);
      dweight.at[i] = fmaf(scaled.at[i], normed.at[i], dweight.at[i]);
      if constexpr (kind == NormKind::layer) dbias.at[i] += scaled.at[i];
      scaled.at[i] *= weight.at[i];  // after the row's end: 0
      sum += scaled.at[i];
      product = fmaf(scaled.at[i], normed.at[i], product);
    }
    const float inverse = 1.0F / static_cast<float>(o.columns);
    float mean_scaled = 0;
    float mean_product = 0;
    if constexpr (kind == NormKind::layer) {
      const float2 sums = block_sums(sum, product, place);
      mean_scaled = sums.x * inverse;
      mean_product = sums.y * inverse;
    } else {
      mean_product = block_sum(product, place) * inverse;
    }
    if (!inside()) return;
    Lanes<T> dx = pack.dx.floats();
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      const float off = kind == NormKind::layer ? scaled.at[i] - mean_scaled : scaled.at[i];
      dx.at[i] = fmaf(fmaf(-normed.at[i], mean_product, off), pack.statistics.scale, dx.at[i]);
    }
    write<access>(dx, o.dx + row * o.columns + column, left);
  }
};

/// Computes dx and, in o.partials, dweight and dbias of kRowChunk rows, added in order: one block
/// for each chunk of rows. For rows of at most kChunkThreads packs.
template <NormKind kind, Access access, class T>
__global__ void __launch_bounds__(kChunkThreads) norm_backward_chunks(Backward<T> o) {
  auto* const places = shared<float>();
  const int column = static_cast<int>(threadIdx.x) * kLanes<T>;
  const int left = o.columns - column;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * Ops::kRowChunk;
  const std::int64_t end = begin + Ops::kRowChunk < o.rows ? begin + Ops::kRowChunk : o.rows;
  ChunkColumns<kind, access, T> own{o, column, left};
  if (own.inside()) own.weight = read<access>(o.weight + column, left);
  complete_weight<kind>(own.weight);
  RowPack<kind, T> ahead[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (begin + i < end) ahead[i] = own.read_row(begin + i);
  }
  for (std::int64_t first = begin; first < end; first += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::int64_t row = first + i;
      if (row >= end) break;
      const RowPack<kind, T> pack = ahead[i];
      if (row + kAhead < end) ahead[i] = own.read_row(row + kAhead);
      // Rows take turns at two places: no thread is two rows ahead of another.
      own.take_row(pack, row, places + (row - begin) % 2 * 64);
    }
  }
  if (!own.inside()) return;
  float* const partials = o.partials + blockIdx.x * std::int64_t{kStatistics<kind>} * o.columns;
  write<access>(own.dweight, partials + column, left);
  if constexpr (kind == NormKind::layer) {
    write<access>(own.dbias, partials + o.columns + column, left);
  }
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
    Lanes<T> weight = read<access>(o.weight + column, left);
    complete_weight<kind>(weight);
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

void norm_backward(cudaStream_t stream, const MatrixShape& shape, const NormBackward& o,
                   float* partials) {
  with_kind(o.kind(), [&]<class Kind>(Kind) { backward<Kind::value>(stream, shape, o, partials); });
}

}  // namespace zero::cuda
