// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Products of weights stored as codes. A warp computes some columns of some rows; its lanes take 16
// bytes of codes of each column in turn, so that weights are loaded side by side and x is read once
// for all columns. CUDA cores only. An element is a sum over each lane's inputs in order, then over
// lanes: neither rows nor columns that are computed beside it change it.
#include "ops/cuda/codes.cuh"
#include "ops/cuda/kernels.h"

namespace zero::cuda {
namespace {

constexpr int kWarps = 4;

template <class T>
struct Operands {
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
  const T* x;
  const unsigned char* weight;
  const T* bias;  // may be null
  T* y;
  float* wide_y;  // y in fp32 instead; null if y is T
  Levels levels;
};

/// Where the warp's columns and rows begin.
struct Corner {
  std::int64_t column;
  std::int64_t row;
};

/// Sums over the lanes of a warp, of each of `count` values, a power of two: as many shuffles for
/// all as there are values, in the order of warp_sum. Afterwards values[0] of a lane is the sum of
/// value lane / (32 / count).
template <int count, int other = 16>
__device__ __forceinline__ void sum_lanes(float* values) {
  if constexpr (count > 1) {
    constexpr int kHalf = count / 2;
    const bool upper = (threadIdx.x & other) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float given = upper ? values[i] : values[i + kHalf];
      const float kept = upper ? values[i + kHalf] : values[i];
      values[i] = kept + __shfl_xor_sync(~0U, given, other);
    }
    if constexpr (other > 1) sum_lanes<kHalf, other / 2>(values);
  } else {
    values[0] += __shfl_xor_sync(~0U, values[0], other);
    if constexpr (other > 1) sum_lanes<1, other / 2>(values);
  }
}

/// sums: (columns, rows).
template <int rows, int columns, class T>
__device__ __forceinline__ void store_sums(const Operands<T>& o, const Corner& corner,
                                           float (&sums)[columns * rows]) {
  constexpr int kLanesOfSum = 32 / (columns * rows);
  sum_lanes<columns * rows>(sums);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t column = corner.column + lane / kLanesOfSum / rows;
  const std::int64_t row = corner.row + lane / kLanesOfSum % rows;
  if (lane % kLanesOfSum != 0 || column >= o.out || row >= o.rows) return;
  float sum = sums[0];
  if (o.bias != nullptr) sum += as_float(o.bias[column]);
  if (o.wide_y != nullptr) {
    o.wide_y[row * o.out + column] = sum;
  } else {
    o.y[row * o.out + column] = rounded<T>(sum);
  }
}

/// Blocks that a multiprocessor holds at least: products of several rows get all registers.
template <int rows>
constexpr int kBlocks = rows == 1 ? 8 : 1;

/// Blocks that a grid has at most in its second and third dimension.
constexpr std::int64_t kMostBlocks = 65'535;

/// blockIdx.x is the tile of rows: blocks that run at the same time read the same weights. The
/// other two dimensions are the tile of columns.
template <WeightFormat format, int rows, int columns, Access access, class T>
__global__ void __launch_bounds__(kWarps * 32, kBlocks<rows>) multiply(Operands<T> o) {
  ZERO_SHARED float levels[16];
  load_levels<format>(o.levels, levels);
  constexpr int kCodes = codes_at_once(format);
  const CodePlaces places(format, o.in, o.out);
  const std::int64_t tile = std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y;
  const Corner corner{(tile * kWarps + threadIdx.x / 32) * columns,
                      std::int64_t{blockIdx.x} * rows};
  if (corner.column >= o.out) return;
  float sums[columns * rows] = {};
  for (std::int64_t depth = threadIdx.x % 32 * kCodes; depth < o.in; depth += 32 * kCodes) {
    unsigned words[columns][4];
    float scales[columns];
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      const std::int64_t column = min(corner.column + c, o.out - 1);
      const uint4 all = *reinterpret_cast<const uint4*>(o.weight + places.code(column, depth));
      words[c][0] = all.x;
      words[c][1] = all.y;
      words[c][2] = all.z;
      words[c][3] = all.w;
      scales[c] = scale<format>(o.weight, places, column, depth);
    }
#pragma unroll
    for (int part = 0; part < kCodes / 8; ++part) {
      const std::int64_t at = depth + 8 * part;
      if (at >= o.in) break;
      Floats<8> values[columns];
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        values[c] =
            eight_values<format>(words[c] + part * code_bits(format) / 4, scales[c], levels);
      }
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        const std::int64_t row = min(corner.row + r, o.rows - 1);
        const Floats<8> x = read_lanes<access, 8>(o.x + row * o.in + at, o.in - at);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            float& sum = sums[c * rows + r];
            sum = fmaf(x.at[i], values[c].at[i], sum);
          }
        }
      }
    }
  }
  store_sums<rows, columns>(o, corner, sums);
}

template <WeightFormat format, int rows, int columns, Access access, class T>
void launch_tiles(cudaStream_t stream, const Operands<T>& o) {
  const std::int64_t tiles = div_ceil(o.out, kWarps * columns);
  const std::int64_t layers = div_ceil(tiles, kMostBlocks);
  launch("linear: codes", multiply<format, rows, columns, access, T>,
         {.blocks = dim3(narrow<unsigned>(div_ceil(o.rows, rows)),
                         narrow<unsigned>(div_ceil(tiles, layers)), narrow<unsigned>(layers)),
          .threads = kWarps * 32},
         stream, o);
}

template <class T>
Operands<T> operands_of(const WeightShape& s, const CodeProduct& o) {
  const bool wide = o.y.dtype() == DType::fp32;
  return {o.rows,
          s.in,
          s.out,
          pointer<T>(o.x),
          pointer<unsigned char>(o.weight),
          o.bias.empty() ? nullptr : pointer<T>(o.bias),
          wide ? nullptr : pointer<T>(o.y),
          wide ? pointer<float>(o.y) : nullptr,
          levels_of(s.format)};
}

}  // namespace

void multiply_codes(cudaStream_t stream, const WeightShape& s, const CodeProduct& o) {
  const std::int64_t columns = s.in % 8 == 0 ? s.in : 1;  // eight inputs are read at once
  with_access(s.dtype, columns, {o.x}, [&]<class T, class A>(std::type_identity<T>, A) {
    const Operands<T> operands = operands_of<T>(s, o);
    with_format(s.format, [&](auto format) {
      if constexpr (A::value == Access::any) {
        return launch_tiles<format(), 4, 4, Access::any>(stream, operands);
      } else {
        if (o.rows == 1) return launch_tiles<format(), 1, 2, Access::whole>(stream, operands);
        if (o.rows <= 4) return launch_tiles<format(), 4, 4, Access::whole>(stream, operands);
        launch_tiles<format(), 8, 4, Access::whole>(stream, operands);
      }
    });
  });
}

}  // namespace zero::cuda
