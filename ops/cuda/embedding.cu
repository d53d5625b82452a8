// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/lanes.cuh"
#include "ops/cuda/row_kernels.h"
#include "ops/cuda/token_order.h"

namespace zero::cuda {
namespace {

template <class T>
struct Forward {
  std::int64_t width;
  int sequence;
  int first;
  unsigned vocabulary;
  const std::int32_t* tokens;
  const T* token_weight;
  const T* position_weight;  // may be null
  T* x;
};

/// On a row_grid.
template <Access access, class T>
__global__ void __launch_bounds__(256) embed_rows(Forward<T> o) {
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  if (column >= o.width) return;
  const std::int64_t left = o.width - column;
  const auto token = static_cast<unsigned>(o.tokens[blockIdx.x] - o.first);
  Lanes<T> x{};
  if (token < o.vocabulary) x = read<access>(o.token_weight + token * o.width + column, left);
  if (o.position_weight != nullptr) {
    const std::int64_t position = blockIdx.x % o.sequence;
    const Lanes<T> more = read<access>(o.position_weight + position * o.width + column, left);
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) x.at[i] += more.at[i];
  }
  write<access>(x, o.x + blockIdx.x * o.width + column, left);
}

template <class T>
struct Backward {
  std::int64_t width;
  std::int64_t batch;
  std::int64_t sequence;
  unsigned vocabulary;
  TokenOrder order;
  const T* dx;
  float* gradient;  // of the table
};

/// Adds to one row of the table of positions; on a row_grid of the sequence.
template <Access access, class T>
__global__ void __launch_bounds__(128) add_positions(Backward<T> o) {
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  if (column >= o.width) return;
  const std::int64_t left = o.width - column;
  float* const gradient = o.gradient + blockIdx.x * o.width + column;
  auto sums = read_lanes<access, kLanes<T>>(gradient, left);
#pragma unroll 4
  for (std::int64_t i = 0; i < o.batch; ++i) {
    const std::int64_t row = i * o.sequence + blockIdx.x;
    const Lanes<T> dx = read<access>(o.dx + row * o.width + column, left);
#pragma unroll
    for (int k = 0; k < kLanes<T>; ++k) sums.at[k] += dx.at[k];
  }
  write<access>(sums, gradient, left);
}

/// On a row_grid of the ordered rows: the block of a token's first row adds all rows of that token.
/// Common tokens have many rows, so several are read before the first is added.
template <Access access, class T>
__global__ void __launch_bounds__(128, 1) add_tokens(Backward<T> o) {
  constexpr int kBatch = 8;
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  const std::int64_t rows = o.batch * o.sequence;
  const std::int64_t begin = blockIdx.x;
  const unsigned token = o.order.tokens[begin];
  const bool opens = begin == 0 || o.order.tokens[begin - 1] != token;
  if (!opens || token == o.vocabulary || column >= o.width) return;
  const std::int64_t left = o.width - column;
  float* const gradient = o.gradient + token * o.width + column;
  auto sums = read_lanes<access, kLanes<T>>(gradient, left);
  for (std::int64_t at = begin; at < rows && o.order.tokens[at] == token; at += kBatch) {
    Lanes<T> dx[kBatch] = {};
    bool own[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      own[k] = at + k < rows && o.order.tokens[at + k] == token;
      if (!own[k]) continue;
      dx[k] = read<access>(o.dx + o.order.rows[at + k] * o.width + column, left);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
#pragma unroll
      for (int i = 0; i < kLanes<T>; ++i) {
        if (own[k]) sums.at[i] += dx[k].at[i];
      }
    }
  }
  write<access>(sums, gradient, left);
}

}  // namespace

void embedding_forward(cudaStream_t stream, const EmbeddingShape& s, View tokens, View token_weight,
                       View position_weight, View x) {
  with_access(
      s.dtype, s.width, {token_weight, position_weight, x},
      [&]<class T, class A>(std::type_identity<T>, A) {
        launch("embedding_forward", embed_rows<A::value, T>,
               row_grid(s.batch * s.sequence, div_ceil(s.width, kLanes<T>)), stream,
               Forward<T>{s.width, narrow<int>(s.sequence), narrow<int>(s.first),
                          narrow<unsigned>(s.vocabulary), pointer<std::int32_t>(tokens),
                          pointer<T>(token_weight), pointer<T>(position_weight), pointer<T>(x)});
      });
}

std::int64_t embedding_bytes(const EmbeddingShape& shape) { return token_order_bytes(shape); }

void embedding_backward(cudaStream_t stream, const EmbeddingShape& s, const EmbeddingBackward& o) {
  const TokenOrder order = order_tokens(stream, s, o.tokens, o.scratch);
  with_access(s.dtype, s.width, {o.dx, o.token_gradient, o.position_gradient},
              [&]<class T, class A>(std::type_identity<T>, A) {
                const std::int64_t packs = div_ceil(s.width, kLanes<T>);
                Backward<T> operands{s.width,
                                     s.batch,
                                     s.sequence,
                                     narrow<unsigned>(s.vocabulary),
                                     order,
                                     pointer<T>(o.dx),
                                     pointer<float>(o.token_gradient)};
                launch("embedding_backward: tokens", add_tokens<A::value, T>,
                       row_grid(s.batch * s.sequence, packs, 128), stream, operands);
                if (o.position_gradient.empty()) return;
                operands.gradient = pointer<float>(o.position_gradient);
                launch("embedding_backward: positions", add_positions<A::value, T>,
                       row_grid(s.sequence, packs, 128), stream, operands);
              });
}

}  // namespace zero::cuda
