// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/formulas.cuh"
#include "ops/cuda/lanes.cuh"
#include "ops/cuda/row_kernels.h"

namespace zero::cuda {
namespace {

template <class T>
struct Rotation {
  int sequence;
  int heads;
  int half;   // of a head's elements
  int packs;  // of half
  std::int64_t row_width;
  T* x;
  const float* cosines;
  const float* sines;
  float sign;
};

/// Each thread rotates a pack of pairs of one head; on a row_grid of the rows' heads * packs.
template <Access access, class T>
__global__ void __launch_bounds__(256) turn_rows(Rotation<T> o) {
  const int item = static_cast<int>(pack_of_thread());
  const int head = item / o.packs;
  if (head >= o.heads) return;
  const int pair = (item - head * o.packs) * kLanes<T>;
  const int left = o.half - pair;
  const std::int64_t of_table = static_cast<std::int64_t>(blockIdx.x % o.sequence) * o.half + pair;
  T* const first = o.x + blockIdx.x * o.row_width + std::int64_t{2} * head * o.half + pair;
  Lanes<T> a = read<access>(first, left);
  Lanes<T> b = read<access>(first + o.half, left);
  const Lanes<T> cosine = read_lanes<access, kLanes<T>>(o.cosines + of_table, left);
  const Lanes<T> sine = read_lanes<access, kLanes<T>>(o.sines + of_table, left);
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) {
    Formulas{}.turn(a.at[i], b.at[i], cosine.at[i], sine.at[i] * o.sign);
  }
  write<access>(a, first, left);
  write<access>(b, first + o.half, left);
}

}  // namespace

void rotary(cudaStream_t stream, const RotaryShape& s, Turn turn, View x, View cosines,
            View sines) {
  const std::int64_t half = s.head_width / 2;
  // Rows and heads start at packs if both widths are multiples of a pack.
  const std::int64_t step = s.row_width % 8 == 0 ? half : 1;
  with_access(s.dtype, step, {x, cosines, sines}, [&]<class T, class A>(std::type_identity<T>, A) {
    const std::int64_t packs = div_ceil(half, kLanes<T>);
    launch("rotary", turn_rows<A::value, T>, row_grid(s.batch * s.sequence, s.heads * packs),
           stream,
           Rotation<T>{narrow<int>(s.sequence), narrow<int>(s.heads), narrow<int>(half),
                       narrow<int>(packs), s.row_width, pointer<T>(x), pointer<float>(cosines),
                       pointer<float>(sines), turn == Turn::forward ? 1.0F : -1.0F});
  });
}

}  // namespace zero::cuda
