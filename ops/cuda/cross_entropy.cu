// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Cross-entropy: one block per row, one pass over the logits for their largest and the sum of their
// exponentials, a second one for gradients: over the copy that the first left in shared memory, if
// the row is aligned and fits. Rows without padding may be unaligned. Exponentials are the
// processor's, of 2 ulp, and not RowFormulas', whose instructions would take longer than memory.
#include <cmath>
#include <limits>

#include "ops/cuda/formulas.cuh"
#include "ops/cuda/lanes.cuh"
#include "ops/cuda/row_kernels.h"

namespace zero::cuda {
namespace {

constexpr int kMostThreads = 512;
constexpr int kBlocks = 2;  // of a multiprocessor: one reads while the other computes
constexpr unsigned kPlaces = block_bytes(2);  // before the row's copy
constexpr int kBatch = 4;                     // packs that a thread reads before computing
constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct Softmax {
  float largest;
  float sum;  ///< of exp(logit - largest)
};

template <class T>
struct Row {
  T* logits;
  std::int64_t columns;
};

/// A full unaligned pack; all 16-byte words that it overlaps must belong to the row.
template <class T>
__device__ __forceinline__ Lanes<T> load_across(const T* from) {
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  const auto offset = static_cast<unsigned>(address % 16);
  const auto* const words = reinterpret_cast<const uint4*>(address - offset);
  const uint4 low = words[0];
  const uint4 high = words[1];
  unsigned bits[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 6; ++i) bits[i] = (offset & 8U) != 0 ? bits[i + 2] : bits[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) bits[i] = (offset & 4U) != 0 ? bits[i + 1] : bits[i];
  detail::Access<T, 16> access;
  const auto word = [&](int i) {
    return sizeof(T) == 2 && (offset & 2U) != 0 ? bits[i] >> 16 | bits[i + 1] << 16 : bits[i];
  };
  access.word = {word(0), word(1), word(2), word(3)};
  Lanes<T> lanes;
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) lanes.at[i] = as_float(access.elements[i]);
  return lanes;
}

/// The pack at `column`; after the row's end, values without effect. `copy`: of an aligned row,
/// receives the pack if it is not null.
template <class T>
__device__ __forceinline__ Lanes<T> pack_at(const Row<T>& row, std::int64_t column, bool aligned,
                                            T* copy) {
  const T* const from = row.logits + column;
  Lanes<T> lanes;
  if (aligned && column + kLanes<T> <= row.columns) {
    const auto packed = load_packed<kLanes<T>>(from);
    if (copy != nullptr) *reinterpret_cast<uint4*>(copy + column) = packed.words[0].word;
    return packed.floats();
  }
  if (column >= kLanes<T> && column + 2 * kLanes<T> <= row.columns) return load_across(from);
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) {
    lanes.at[i] = kLowest;
    if (column + i >= row.columns) continue;
    if (copy != nullptr) copy[column + i] = from[i];
    lanes.at[i] = as_float(from[i]);
  }
  return lanes;
}

/// exp(x - largest), shift = largest * log2(e).
__device__ __forceinline__ float power(float x, float shift) {
  const float exponent = fmaf(x, kLog2E, -shift);
#ifdef __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
  return result;
#else
  return std::exp2(exponent);
#endif
}

/// If all are -infinity, shifting by 0 instead gives a sum of zeros, not NaN.
__device__ __forceinline__ float shift_of(float largest) {
  return largest == kLowest ? 0.0F : largest * kLog2E;
}

/// `copy`: receives the row, if it is not null; of an aligned row only.
template <class T>
__device__ __forceinline__ Softmax softmax_of(const Row<T>& row, float* place, T* copy) {
  const bool aligned = is_wide<T, kLanes<T>>(row.logits);
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * kLanes<T>;
  Softmax own{kLowest, 0.0F};
  for (std::int64_t column = static_cast<std::int64_t>(threadIdx.x) * kLanes<T>;
       column < row.columns; column += kBatch * step) {
    Lanes<T> packs[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const std::int64_t at = column + k * step;
      packs[k] = pack_at(row, at, aligned, copy);
    }
    float largest = own.largest;
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
#pragma unroll
      for (int i = 0; i < kLanes<T>; ++i) largest = fmaxf(largest, packs[k].at[i]);
    }
    const float shift = shift_of(largest);
    own = {largest, own.sum * power(own.largest, shift)};
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
#pragma unroll
      for (int i = 0; i < kLanes<T>; ++i) own.sum += power(packs[k].at[i], shift);
    }
  }
  const float largest = block_max(own.largest, kLowest, place);
  const float sum = block_sum(own.sum * power(own.largest, shift_of(largest)), place + 32);
  return {largest, sum};
}

/// A row's target: outside the columns if another rank has it, and then `logit` is of no use.
struct Target {
  std::int64_t column;
  float logit;
};

/// Overwrites the row with factor * exp(logit - largest), minus `scale` at the target. Elementwise,
/// so packs may start at 16-byte boundaries. `logits`: the row or its copy.
template <class T>
__device__ __forceinline__ void gradient_row(const Row<T>& row, const T* logits,
                                             const Target& target, const Softmax& softmax,
                                             float scale) {
  const float shift = softmax.largest * kLog2E;
  const float factor = scale / softmax.sum;
  const auto gradient = [&](float logit) { return power(logit, shift) * factor; };
  const auto of_target = [&] { return rounded<T>(gradient(target.logit) - scale); };
  const auto one = [&](std::int64_t column) {
    row.logits[column] =
        column == target.column ? of_target() : rounded<T>(gradient(as_float(logits[column])));
  };
  const auto offset = static_cast<int>(reinterpret_cast<std::uintptr_t>(row.logits) % 16);
  const int unaligned = (16 - offset) % 16 / static_cast<int>(sizeof(T));
  const std::int64_t head = unaligned < row.columns ? unaligned : row.columns;
  const std::int64_t packs = (row.columns - head) / kLanes<T>;
  const std::int64_t tail = head + packs * kLanes<T>;
  if (threadIdx.x < head) one(threadIdx.x);
  if (tail + threadIdx.x < row.columns) one(tail + threadIdx.x);
#pragma unroll 2
  for (std::int64_t pack = threadIdx.x; pack < packs; pack += blockDim.x) {
    const std::int64_t column = head + pack * kLanes<T>;
    Lanes<T> lanes = load<kLanes<T>>(logits + column);
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) lanes.at[i] = gradient(lanes.at[i]);
    store<kLanes<T>>(lanes, row.logits + column);
  }
  // The thread that wrote the target's pack.
  const std::int64_t in_packs = target.column - head;
  if (in_packs >= 0 && target.column < tail && in_packs / kLanes<T> % blockDim.x == threadIdx.x) {
    row.logits[target.column] = of_target();
  }
}

enum class Wanted : std::uint8_t { losses, losses_and_gradients, parts, gradients };

template <class T>
struct Logits {
  std::int64_t columns;
  std::int64_t stride;
  std::int64_t first;
  T* logits;
  const std::int32_t* targets;
  float scale;
  double* losses;
  float* parts;  // kSoftmaxPart per row
  int copies;    // whether shared memory has room for a row
};

template <Wanted wanted, class T>
__global__ void __launch_bounds__(kMostThreads, kBlocks) cross_entropy_rows(Logits<T> o) {
  const std::int64_t at = blockIdx.x;
  const Row<T> row{o.logits + at * o.stride, o.columns};
  Target target{o.targets[at] - o.first, 0.0F};
  // Read before any thread overwrites the row.
  if (target.column >= 0 && target.column < o.columns) {
    target.logit = as_float(row.logits[target.column]);
  }
  float* const part = o.parts + at * kSoftmaxPart;
  Softmax softmax{};
  T* copy = nullptr;
  if (wanted == Wanted::losses_and_gradients && o.copies != 0 &&
      is_wide<T, kLanes<T>>(row.logits)) {
    copy = reinterpret_cast<T*>(shared<unsigned char>() + kPlaces);
  }
  if constexpr (wanted == Wanted::gradients) {
    softmax = {part[0], part[1]};
    __syncthreads();  // all have read the target's logit
  } else {
    softmax = softmax_of(row, shared<float>(), copy);
    if (threadIdx.x == 0 && wanted == Wanted::parts) {
      part[0] = softmax.largest;
      part[1] = softmax.sum;
      part[2] = target.logit;
    } else if (threadIdx.x == 0) {
      o.losses[at] = log(static_cast<double>(softmax.sum)) + static_cast<double>(softmax.largest) -
                     static_cast<double>(target.logit);
    }
  }
  if constexpr (wanted == Wanted::gradients || wanted == Wanted::losses_and_gradients) {
    // The barriers of the sums lie between the copy's writes and its reads.
    gradient_row(row, copy == nullptr ? row.logits : copy, target, softmax, o.scale);
  }
}

struct Operands {
  View logits, targets;
  View losses{}, parts{};
  float scale = 0;
};

/// Bytes of a row's copy in shared memory; 0 if no copy is wanted, or a block has no room for one.
template <Wanted wanted, class T>
unsigned copy_bytes(const LogitsShape& s) {
  if (wanted != Wanted::losses_and_gradients || s.row_stride() % kLanes<T> != 0) return 0;
  int device = 0;
  int most = 0;
  check(cudaGetDevice(&device), "ask for the current device");
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "ask for a block's shared memory");
  const std::int64_t bytes = round_up(s.columns, kLanes<T>) * static_cast<std::int64_t>(sizeof(T));
  return bytes + kPlaces <= most ? narrow<unsigned>(bytes) : 0;
}

template <Wanted wanted, class T>
void launch_typed(const char* name, cudaStream_t stream, const LogitsShape& s, const Operands& o) {
  const unsigned copy = copy_bytes<wanted, T>(s);
  launch(name, cross_entropy_rows<wanted, T>,
         {.blocks = dim3(narrow<unsigned>(s.rows)),
          .threads = threads_for(div_ceil(s.columns, kLanes<T>), kMostThreads),
          .shared_bytes = kPlaces + copy},
         stream,
         Logits<T>{s.columns, s.row_stride(), s.first, pointer<T>(o.logits),
                   pointer<std::int32_t>(o.targets), o.scale, pointer<double>(o.losses),
                   pointer<float>(o.parts), copy > 0 ? 1 : 0});
}

template <Wanted wanted>
void launch_rows(const char* name, cudaStream_t stream, const LogitsShape& s, const Operands& o) {
  if (s.dtype == DType::bf16) {
    launch_typed<wanted, bfloat16>(name, stream, s, o);
  } else if (s.dtype == DType::fp16) {
    launch_typed<wanted, float16>(name, stream, s, o);
  } else {
    launch_typed<wanted, float>(name, stream, s, o);
  }
}

/// One thread per row. Rescales the sums of exponentials to the largest logit of all ranks.
__global__ void __launch_bounds__(128)
    fold_softmax_rows(std::int64_t rows, std::int64_t ranks, float* parts, double* losses) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const auto part = [&](std::int64_t rank) { return parts + (rank * rows + row) * kSoftmaxPart; };
  float largest = part(0)[0];
  for (std::int64_t rank = 1; rank < ranks; ++rank) largest = fmaxf(largest, part(rank)[0]);
  double total = 0;
  float target = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const float* of_rank = part(rank);
    total += static_cast<double>(of_rank[1]) *
             exp(static_cast<double>(of_rank[0]) - static_cast<double>(largest));
    target += of_rank[2];
  }
  part(0)[0] = largest;
  part(0)[1] = static_cast<float>(total);
  losses[row] = log(total) + static_cast<double>(largest) - static_cast<double>(target);
}

constexpr int kSumThreads = 256;

/// Each thread adds a part of the losses in order; then one thread adds the parts' sums in
/// order.
__global__ void __launch_bounds__(kSumThreads)
    sum_in_order(std::int64_t count, const double* losses, double* total) {
  ZERO_SHARED double sums[kSumThreads];
  const std::int64_t part = (count + kSumThreads - 1) / kSumThreads;
  const std::int64_t begin = threadIdx.x * part;
  const std::int64_t end = begin + part < count ? begin + part : count;
  double own = 0;
#pragma unroll 8
  for (std::int64_t i = begin; i < end; ++i) own += losses[i];
  sums[threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double all = 0;
  for (const double each : sums) all += each;
  *total = all;
}

}  // namespace

void cross_entropy_forward(cudaStream_t stream, const LogitsShape& shape, View logits, View targets,
                           View losses) {
  launch_rows<Wanted::losses>("cross_entropy_forward", stream, shape,
                              {.logits = logits, .targets = targets, .losses = losses});
}

void cross_entropy_backward(cudaStream_t stream, const LogitsShape& shape, View logits,
                            View targets, float scale, View losses) {
  launch_rows<Wanted::losses_and_gradients>(
      "cross_entropy_backward", stream, shape,
      {.logits = logits, .targets = targets, .losses = losses, .scale = scale});
}

void softmax_part(cudaStream_t stream, const LogitsShape& shape, View logits, View targets,
                  View parts) {
  launch_rows<Wanted::parts>("softmax_part", stream, shape,
                             {.logits = logits, .targets = targets, .parts = parts});
}

void fold_softmax(cudaStream_t stream, std::int64_t rows, std::int64_t ranks, View parts,
                  View losses) {
  launch("fold_softmax", fold_softmax_rows,
         {.blocks = dim3(narrow<unsigned>(div_ceil(rows, 128))), .threads = 128}, stream, rows,
         ranks, pointer<float>(parts), pointer<double>(losses));
}

void cross_entropy_gradient(cudaStream_t stream, const LogitsShape& shape, View logits,
                            View targets, View softmax, float scale) {
  launch_rows<Wanted::gradients>(
      "cross_entropy_gradient", stream, shape,
      {.logits = logits, .targets = targets, .parts = softmax, .scale = scale});
}

void sum(cudaStream_t stream, View losses, View total) {
  launch("sum", sum_in_order, {.blocks = dim3(1), .threads = kSumThreads}, stream, losses.count(),
         pointer<double>(losses), pointer<double>(total));
}

}  // namespace zero::cuda
