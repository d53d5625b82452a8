// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "device/cpu/dispatch.h"
#include "device/cuda/exact_sum.cuh"
#include "device/cuda/index.h"
#include "device/cuda/number.cuh"
#include "device/cuda/primitives.h"

namespace zero::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
constexpr int kLeaf = 4;  // inputs whose loads are in flight together
/// Excluded ranges of one launch. A block of the norm overlaps no more: they are disjoint.
constexpr int kMostRanges = 32;
constexpr int kNorm = static_cast<int>(kNormBlock);
constexpr int kNormLanes = 8;  // fp64 lanes for the squares of a block

/// Whether results overwrite addends that are not read yet.
bool shrinks_in_place(const ReduceEpilogue& epilogue) {
  const View& destination = epilogue.destination;
  return std::ranges::any_of(epilogue.addends, [&](const View& addend) {
    return addend.data() == destination.data() && addend.dtype() != destination.dtype();
  });
}

/// Whether the destination holds the sum already: it is the only input.
bool is_its_own_sum(std::span<const View> inputs, const ReduceEpilogue& epilogue) {
  const View& destination = epilogue.destination;
  return inputs.size() == 1 && epilogue.addends.empty() &&
         inputs.front().data() == destination.data() &&
         inputs.front().dtype() == destination.dtype();
}

/// Addresses of the inputs.
template <int most>
struct Inputs {
  const void* at[most];
  int count;
};

/// A ReduceEpilogue and its elements.
struct Tail {
  const float* addends[kMostAddends];
  int addend_count;
  int wide;     // all addresses take the widest accesses
  int shrinks;  // the destination lies on an addend of larger elements
  int written;  // the destination is the only input: only read, for the norm
  void* destination;
  DType dtype;
  std::int64_t count;
  Limb* limbs;  // null: no norm
  std::int64_t excluded_at;
  int range_count;
  ElementRange ranges[kMostRanges];
};

/// Elements of one thread: 16 bytes of the inputs.
template <class From>
constexpr int kElements = 16 / static_cast<int>(sizeof(From));

template <int N>
__device__ __forceinline__ Floats<N> add(const Floats<N>& a, const Floats<N>& b) {
  Floats<N> sum;
#pragma unroll
  for (int i = 0; i < N; ++i) sum.at[i] = a.at[i] + b.at[i];
  return sum;
}

/// N elements from `at` on, 16 bytes at a time, or one by one if only `left` remain or an operand
/// is not aligned.
template <int N, bool kWide, class T>
__device__ __forceinline__ Floats<N> read(const T* from, std::int64_t at, int left) {
  if constexpr (kWide) {
    return load<N>(from + at);
  } else {
    return load_first<N>(from + at, left);
  }
}

/// Returns the stored values, and zeros for elements not stored.
template <int N, bool kWide, class T>
__device__ __forceinline__ Floats<N> write(const Floats<N>& values, T* to, int left) {
  if constexpr (kWide) {
    store(values, to);
  } else {
    store_first(values, to, left);
  }
  Floats<N> stored;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    stored.at[i] = kWide || i < left ? as_float(rounded<T>(values.at[i])) : 0.0F;
  }
  return stored;
}

/// tree(inputs) at elements [at, at + N): groups of kLeaf inputs are the tree's leaves; levels[l]
/// holds the pending sum of 2^l leaves until its sibling is complete.
template <class From, int kLevels, bool kWide, int most>
__device__ __forceinline__ Floats<kElements<From>> tree_sum(const Inputs<most>& inputs,
                                                            std::int64_t at, int left) {
  constexpr int N = kElements<From>;
  const auto input = [&](int i) {
    return read<N, kWide>(static_cast<const From*>(inputs.at[i]), at, left);
  };
  Floats<N> levels[kLevels] = {};
  const int groups = inputs.count / kLeaf;
  for (int group = 0; group < groups; ++group) {
    const Floats<N> a = input(group * kLeaf);
    const Floats<N> b = input(group * kLeaf + 1);
    const Floats<N> c = input(group * kLeaf + 2);
    const Floats<N> d = input(group * kLeaf + 3);
    Floats<N> sum = add(add(a, b), add(c, d));
    bool placed = false;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (placed) continue;
      if ((group >> level & 1) != 0) {
        sum = add(levels[level], sum);
      } else {
        levels[level] = sum;
        placed = true;
      }
    }
  }
  // The pending sums are the tree's right edge: the smallest part first.
  const int rest = inputs.count % kLeaf;
  Floats<N> value = {};
  bool begun = rest > 0;
  if (rest > 0) {
    value = input(groups * kLeaf);
    if (rest > 1) value = add(value, input(groups * kLeaf + 1));
    if (rest > 2) value = add(value, input(groups * kLeaf + 2));
  }
#pragma unroll
  for (int level = 0; level < kLevels; ++level) {
    if ((groups >> level & 1) == 0) continue;
    value = begun ? add(levels[level], value) : levels[level];
    begun = true;
  }
  return value;
}

/// Zeroes the excluded among elements [at, at + N).
template <int N>
__device__ __forceinline__ void drop_excluded(const Tail& tail, std::int64_t at,
                                              Floats<N>& values) {
  for (int r = 0; r < tail.range_count; ++r) {
    const std::int64_t begin = tail.ranges[r].begin - (tail.excluded_at + at);
    const std::int64_t end = begin + tail.ranges[r].count;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i >= begin && i < end) values.at[i] = 0.0F;
    }
  }
}

/// Adds the squares of a warp's elements to the norm, block by block: element i of a block goes to
/// fp64 lane i % 8, lanes are added as a tree, as the CPU does. `tile` is the warp's own.
template <int N>
__device__ __forceinline__ void add_norm(const Floats<N>& values, float* tile, LimbAdder& norm,
                                         Limb* limbs) {
  constexpr int kPadded = kNorm + kNormLanes;  // avoids bank conflicts
  constexpr int kSummers = kWarp * N / kNorm * kNormLanes;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = lane * N;
#pragma unroll
  for (int i = 0; i < N; ++i) tile[first / kNorm * kPadded + first % kNorm + i] = values.at[i];
  __syncwarp();
  double sum = 0;
  if (lane < kSummers) {
#pragma unroll
    for (int i = 0; i < kNorm; i += kNormLanes) {
      const double value = tile[lane / kNormLanes * kPadded + lane % kNormLanes + i];
      sum = sum + value * value;  // the product is exact
    }
  }
#pragma unroll
  for (int step = 1; step < kNormLanes; step *= 2) sum += __shfl_xor_sync(~0U, sum, step);
  if (lane < kSummers && lane % kNormLanes == 0) norm.add(sum, limbs);
}

/// Elements [at, at + N) of the reduction; returns the stored values.
template <class From, int kLevels, bool kWide, int most>
__device__ __forceinline__ Floats<kElements<From>> reduce_elements(const Inputs<most>& inputs,
                                                                   const Tail& tail,
                                                                   std::int64_t at) {
  constexpr int N = kElements<From>;
  const int left = static_cast<int>(max(std::int64_t{0}, min(tail.count - at, std::int64_t{N})));
  Floats<N> value = tree_sum<From, kLevels, kWide>(inputs, at, left);
  for (int i = 0; i < tail.addend_count; ++i) {
    value = add(value, read<N, kWide>(tail.addends[i], at, left));
  }
  if (tail.written != 0) return value;
  if (tail.shrinks != 0) __syncwarp();  // before any thread overwrites what others read
  switch (tail.dtype) {
    case DType::bf16:
      return write<N, kWide>(value, static_cast<bfloat16*>(tail.destination) + at, left);
    case DType::fp16:
      return write<N, kWide>(value, static_cast<float16*>(tail.destination) + at, left);
    default:
      return write<N, kWide>(value, static_cast<float*>(tail.destination) + at, left);
  }
}

/// Blocks per multiprocessor: enough loads in flight without spilling registers.
template <int kLevels>
constexpr int kResident = kLevels <= 5 ? 2 : 1;

template <class From, int kLevels, int most>
__global__ void __launch_bounds__(kThreads, kResident<kLevels>)
    reduce(const __grid_constant__ Inputs<most> inputs, const __grid_constant__ Tail tail) {
  constexpr int N = kElements<From>;
  ZERO_SHARED float tiles[kWarps][kWarp * N + kWarp * N / kNorm * kNormLanes];
  ZERO_SHARED Limb limbs[ExactSum::kLimbs];
  const bool counts = tail.limbs != nullptr;
  if (counts) {
    if (threadIdx.x < ExactSum::kLimbs) limbs[threadIdx.x] = 0;
    __syncthreads();
  }
  LimbAdder norm;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  constexpr std::int64_t kStep = static_cast<std::int64_t>(kWarp) * N;  // elements per warp
  for (std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kWarps + warp) * kStep;
       first < tail.count; first += kStep * kWarps * gridDim.x) {
    const std::int64_t at = first + lane * N;
    Floats<N> value = tail.wide != 0 && first + kStep <= tail.count
                          ? reduce_elements<From, kLevels, true>(inputs, tail, at)
                          : reduce_elements<From, kLevels, false>(inputs, tail, at);
    if (counts) {
      drop_excluded(tail, at, value);
      add_norm(value, tiles[warp], norm, limbs);
      __syncwarp();  // the next iteration overwrites the tile
    }
  }
  if (!counts) return;
  norm.flush(limbs);
  __syncthreads();
  if (threadIdx.x < ExactSum::kLimbs && limbs[threadIdx.x] != 0) {
    atomicAdd(tail.limbs + threadIdx.x, limbs[threadIdx.x]);
  }
}

/// Elements [begin, begin + count) of a reduction, and those of them left out of the norm.
struct Piece {
  std::span<const View> inputs;
  const ReduceEpilogue& epilogue;
  std::int64_t begin;
  std::int64_t count;
  std::span<const ElementRange> excluded;
};

std::byte* address(const View& view, std::int64_t element) {
  return static_cast<std::byte*>(view.data()) + element * size_of(view.dtype());
}

Tail tail_of(const Piece& piece, std::int64_t* limbs) {
  const ReduceEpilogue& epilogue = piece.epilogue;
  Tail tail{};
  for (const View& addend : epilogue.addends) {
    tail.addends[tail.addend_count++] = reinterpret_cast<float*>(address(addend, piece.begin));
  }
  tail.destination = address(epilogue.destination, piece.begin);
  tail.dtype = epilogue.destination.dtype();
  tail.count = piece.count;
  tail.limbs = reinterpret_cast<Limb*>(limbs);
  tail.shrinks = shrinks_in_place(epilogue) ? 1 : 0;
  tail.written = is_its_own_sum(piece.inputs, epilogue) ? 1 : 0;
  tail.excluded_at = epilogue.excluded_at + piece.begin;
  for (const ElementRange& range : piece.excluded) tail.ranges[tail.range_count++] = range;
  return tail;
}

template <class From, int kLevels, int most>
void launch_reduce(const Piece& piece, Tail tail, int blocks, cudaStream_t stream) {
  constexpr int N = kElements<From>;
  Inputs<most> inputs{};
  bool wide = is_wide<From, N>(tail.destination);  // 16 bytes: enough for any destination
  for (const View& input : piece.inputs) {
    const void* const at = address(input, piece.begin);
    inputs.at[inputs.count++] = at;
    wide = wide && is_wide<From, N>(at);
  }
  for (int i = 0; i < tail.addend_count; ++i) wide = wide && is_wide<float, N>(tail.addends[i]);
  tail.wide = wide ? 1 : 0;
  launch("tree_reduce", reduce<From, kLevels, most>,
         {dim3(blocks_for(div_ceil(piece.count, N), blocks))}, stream, inputs, tail);
}

void reduce_piece(const Piece& piece, std::int64_t* limbs, int blocks, cudaStream_t stream) {
  const Tail tail = tail_of(piece, limbs);
  cpu::dispatch(piece.inputs.front().dtype(), [&](auto type) {
    using From = typename decltype(type)::type;
    if (piece.inputs.size() <= 8) {
      launch_reduce<From, 2, 8>(piece, tail, blocks, stream);
    } else if (piece.inputs.size() <= 64) {
      launch_reduce<From, 5, 64>(piece, tail, blocks, stream);
    } else {
      launch_reduce<From, 10, static_cast<int>(kMostInputs)>(piece, tail, blocks, stream);
    }
  });
}

}  // namespace

void tree_reduce(std::span<const View> inputs, const ReduceEpilogue& epilogue, std::int64_t* limbs,
                 int blocks, cudaStream_t stream) {
  const std::int64_t count = epilogue.destination.count();
  if (limbs == nullptr && is_its_own_sum(inputs, epilogue)) return;
  const auto reduce_range = [&](const ElementRange& range) {
    for_norm_pieces(epilogue, range, kMostRanges,
                    [&](const ElementRange& piece, std::span<const ElementRange> excluded) {
                      reduce_piece({inputs, epilogue, piece.begin, piece.count, excluded}, limbs,
                                   blocks, stream);
                    });
  };
  if (shrinks_in_place(epilogue)) {
    // A warp reads all its operands before it writes.
    for_shrinking_ranges(count, kWarp * 4, reduce_range);
  } else if (count > 0) {
    reduce_range({0, count});
  }
}

}  // namespace zero::cuda
