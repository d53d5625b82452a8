// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "device/cuda/index.h"
#include "optim/cuda/access.cuh"
#include "optim/cuda/update.h"
#include "optim/update.h"

namespace zero::cuda {
namespace small {
namespace {

#include "optim/small_moments.inc"
#include "optim/update_rules.inc"

struct Ops {
  __host__ __device__ constexpr float set(float value) const { return value; }
  __device__ float sqrt(float value) const { return __fsqrt_rn(value); }
  __device__ float abs(float value) const {
    return __uint_as_float(__float_as_uint(value) & 0x7fffffffU);
  }
  __device__ float max(float a, float b) const { return a > b ? a : b; }
  __device__ float copy_sign(float magnitude, float sign) const {
    return __uint_as_float(__float_as_uint(magnitude) | (__float_as_uint(sign) & 0x80000000U));
  }
  __device__ float to_float(int value) const { return static_cast<float>(value); }
  __device__ float if_positive(float value, float y) const { return value > 0 ? y : 0.0F; }
  /// To nearest even, below 2^22: adding 1.5 * 2^23 leaves the integer in the low bits.
  __device__ int nearest(float value) const {
    return __float_as_int(__fadd_rn(value, 12582912.0F)) - 0x4b400000;
  }
  __device__ int nearest_less_one(float value) const { return nearest(value - 1.0F); }
  __device__ unsigned bits(float value) const { return __float_as_uint(value); }
  __device__ float as_float(unsigned bits) const { return __uint_as_float(bits); }
  __device__ unsigned word(unsigned value) const { return value; }
  template <int kBits>
  __device__ unsigned left(unsigned value) const {
    return value << kBits;
  }
  template <int kBits>
  __device__ unsigned right(unsigned value) const {
    return value >> kBits;
  }
  __device__ unsigned select_less(unsigned a, unsigned b, unsigned yes, unsigned no) const {
    return a < b ? yes : no;
  }
};

constexpr int kWarp = 32;
constexpr int kEach = static_cast<int>(kMomentBlock) / kWarp;  // neighbouring elements of a thread
constexpr std::int64_t kTile = std::int64_t{kThreads} * kEach;

using Values = Floats<kEach>;

/// The codes of a thread's elements, in words: nvcc makes narrower accesses of a union of bytes.
struct Codes {
  static_assert(kEach == 8);
  uint2 words = {};

  __device__ __forceinline__ std::uint8_t at(int i) const {
    return static_cast<std::uint8_t>((i < 4 ? words.x : words.y) >> (8 * (i % 4)));
  }
  __device__ __forceinline__ void set(int i, unsigned code) {  // of a code that is 0
    (i < 4 ? words.x : words.y) |= (code & 0xffU) << (8 * (i % 4));
  }
};

/// A moment of a thread's elements as it lies in memory: bf16, or codes and the scale of their
/// block.
struct Stored {
  Values values;
  Codes codes;
  float scale = 0;
};

template <bool kCoded, bool kWide>
__device__ __forceinline__ Stored read_moment(const SmallMoments& small, int moment,
                                              const ThreadElements& own) {
  Stored stored;
  if constexpr (kCoded) {
    const auto* const codes = static_cast<const std::uint8_t*>(small.values[moment]) + own.at;
    if constexpr (kWide) {
      stored.codes.words = *reinterpret_cast<const uint2*>(codes);
    } else {
#pragma unroll
      for (int i = 0; i < kEach; ++i) stored.codes.set(i, i < own.left ? codes[i] : 0);
    }
    stored.scale = kWide || own.left > 0 ? small.scales[moment][own.at / kMomentBlock] : 0.0F;
  } else {
    stored.values = read<bfloat16, kEach, kWide>(small.values[moment], own);
  }
  return stored;
}

// Templates, so that nvcc compiles the shared sources' functions for the device alone.
template <class O>
__device__ __forceinline__ float decoded(int moment, std::uint8_t code, float scale) {
  if (moment == 0) return SignedCodes<O>().decode(int{static_cast<std::int8_t>(code)}, scale);
  return UnsignedCodes<O>().decode(int{code}, scale);
}

template <class O, bool kCoded>
__device__ __forceinline__ Values values_of(const Stored& stored, int moment) {
  if constexpr (kCoded) {
    Values values;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      values.at[i] = decoded<O>(moment, stored.codes.at(i), stored.scale);
    return values;
  } else {
    return stored.values;
  }
}

/// The rounding keys of the 2^32 elements from number high * 2^32 on.
struct KeysOf {
  std::int64_t high;
  RoundingKeys keys;
};

/// The numbers of consecutive elements of an update.
class Numbers {
 public:
  __device__ __forceinline__ Numbers(const LogicalElements& elements, std::int64_t at)
      : run_(elements.run), jump_(elements.stride - elements.run) {
    const bool whole = run_ == std::numeric_limits<std::int64_t>::max();  // avoids divisions
    in_run_ = whole ? at : at % run_;
    number_ = whole ? elements.first + at : elements.at(at);
  }
  __device__ __forceinline__ std::int64_t next() {
    const std::int64_t number = number_++;
    if (++in_run_ == run_) {
      in_run_ = 0;
      number_ += jump_;
    }
    return number;
  }

 private:
  std::int64_t run_;
  std::int64_t jump_;
  std::int64_t in_run_;
  std::int64_t number_;
};

/// Rounds the moments of a thread's elements to values of bf16. `known` are the keys of the
/// update's first element, which nearly all others have, too.
template <class O, int kMoments>
__device__ __forceinline__ void round_moments(const SmallMoments& small, KeysOf known,
                                              std::int64_t at, Values (&moments)[2]) {
  Numbers numbers(small.elements, at);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const std::int64_t number = numbers.next();
    if (number >> 32 != known.high) {
      known.high = number >> 32;
      known.keys = rounding_keys(small.elements.parameter, small.step, known.high);
    }
    const unsigned bits = RandomBits<O>{known.keys, {}}(static_cast<unsigned>(number));
#pragma unroll
    for (int moment = 0; moment < kMoments; ++moment) {
      float& value = moments[moment].at[i];
      const unsigned some = moment == 0 ? bits & 0xffffU : bits >> 16;
      value = __uint_as_float(round_stochastically(O(), __float_as_uint(value), some) << 16);
    }
  }
}

/// The bits of the largest magnitude of a warp's values.
__device__ __forceinline__ unsigned largest_bits(const Values& values) {
  unsigned largest = 0;
#pragma unroll
  for (const float value : values.at) largest = max(largest, __float_as_uint(value) & 0x7fffffffU);
#pragma unroll
  for (int other = kWarp / 2; other > 0; other /= 2)
    largest = max(largest, __shfl_xor_sync(~0U, largest, other));
  return largest;
}

/// Stores a warp's block of values; values behind the end are 0.
template <class O, bool kWide>
__device__ __forceinline__ void encode_block(const SmallMoments& small, int moment,
                                             const ThreadElements& own, const Values& values) {
  const unsigned bits = largest_bits(values);
  float scale = __uint_as_float(bits);
  const bool coded = scale >= kSmallestScale && bits < 0x7f800000U;
  if (!coded) scale = bits >= 0x7f800000U ? __uint_as_float(0x7fc00000U) : 0.0F;
  const float inverse = coded ? __fdiv_rn(1.0F, scale) : 0.0F;
  if (threadIdx.x % kWarp == 0 && own.left > 0) small.scales[moment][own.at / kMomentBlock] = scale;
  Codes codes;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    int code = 0;
    if (coded) {
      code = moment == 0 ? SignedCodes<O>().encode(values.at[i], inverse)
                         : UnsignedCodes<O>().encode(values.at[i], inverse);
    }
    codes.set(i, static_cast<unsigned>(code));
  }
  auto* const to = static_cast<std::uint8_t*>(small.values[moment]) + own.at;
  if constexpr (kWide) {
    *reinterpret_cast<uint2*>(to) = codes.words;
  } else {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (i < own.left) to[i] = codes.at(i);
  }
}

/// A warp updates one block of kMomentBlock elements. All reads come first.
template <class Rule, bool kCoded, bool kWide>
__device__ __forceinline__ void update_tile(const Rule& rule, const UpdateMemory& memory,
                                            const SmallMoments& small, const KeysOf& known,
                                            std::int64_t count) {
  constexpr int kMoments = Rule::kMoments;
  const ThreadElements own =
      thread_elements<kEach>(blockIdx.x * kTile + threadIdx.x * kEach, count);
  Stored stored[kMoments];
#pragma unroll
  for (int moment = 0; moment < kMoments; ++moment)
    stored[moment] = read_moment<kCoded, kWide>(small, moment, own);
  Values master = read<float, kEach, kWide>(memory.master, own);
  const Values gradient = read_gradient<kEach, kWide>(memory, own);
  Values moments[2] = {};
#pragma unroll
  for (int moment = 0; moment < kMoments; ++moment)
    moments[moment] = values_of<Ops, kCoded>(stored[moment], moment);
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    apply(rule, master.at[i], gradient.at[i], moments[0].at[i], moments[1].at[i]);
  write_master<kWide>(master, memory, own);
  if constexpr (!kCoded) round_moments<Ops, kMoments>(small, known, own.at, moments);
  __syncwarp();  // every lane has read the block's scales
#pragma unroll
  for (int moment = 0; moment < kMoments; ++moment) {
    if constexpr (kCoded) {
      encode_block<Ops, kWide>(small, moment, own, moments[moment]);
    } else {
      write<bfloat16, kWide>(moments[moment], small.values[moment], own);
    }
  }
}

template <class Rule, bool kCoded>
__global__ void __launch_bounds__(kThreads)
    update(Rule rule, UpdateMemory memory, SmallMoments small, KeysOf known, std::int64_t count,
           int aligned) {
  if (aligned != 0 && (blockIdx.x + std::int64_t{1}) * kTile <= count) {
    update_tile<Rule, kCoded, true>(rule, memory, small, known, count);
  } else {
    update_tile<Rule, kCoded, false>(rule, memory, small, known, count);
  }
}

__global__ void __launch_bounds__(kThreads)
    decode(int moment, const std::uint8_t* codes, const float* scales, std::int64_t phase,
           std::int64_t count, float* to) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at < count) to[at] = decoded<Ops>(moment, codes[at], scales[(phase + at) / kMomentBlock]);
}

template <class Rule>
void launch_update(const char* name, const Rule& rule, const UpdateMemory& memory,
                   const SmallMoments& small, const Extent& extent) {
  const bool coded = small.format == MomentFormat::eight_bit;
  bool aligned = is_aligned<kEach>(memory);
  for (int i = 0; i < small.count; ++i) {
    aligned &= coded ? is_wide<std::uint8_t, kEach>(small.values[i])
                     : is_wide<bfloat16, kEach>(small.values[i]);
  }
  const std::int64_t high = small.elements.first >> 32;
  const KeysOf known{high, rounding_keys(small.elements.parameter, small.step, high)};
  const auto blocks = static_cast<unsigned>(div_ceil(extent.count, kTile));
  launch(name, coded ? update<Rule, true> : update<Rule, false>, {dim3(blocks)}, extent.stream,
         rule, memory, small, known, extent.count, aligned ? 1 : 0);
}

}  // namespace
}  // namespace small

void update_small_adamw(const AdamConstants& constants, const UpdateMemory& memory,
                        const SmallMoments& moments, const Extent& extent) {
  small::launch_update("adamw", small::AdamWRule<small::Ops>{constants, {}}, memory, moments,
                       extent);
}

void update_small_adam(const AdamConstants& constants, const UpdateMemory& memory,
                       const SmallMoments& moments, const Extent& extent) {
  small::launch_update("adam", small::AdamRule<small::Ops>{constants, {}}, memory, moments, extent);
}

void update_small_sgd(const SgdConstants& constants, const UpdateMemory& memory,
                      const SmallMoments& moments, const Extent& extent) {
  small::launch_update("sgd with momentum", small::MomentumRule<small::Ops>{constants, {}}, memory,
                       moments, extent);
}

void decode(const CodedMoment& from, const View& to, cudaStream_t stream) {
  launch("decode", small::decode, {dim3(blocks_for(to.count()))}, stream, from.moment,
         static_cast<const std::uint8_t*>(from.codes.data()),
         static_cast<const float*>(from.scales.data()), from.phase, to.count(),
         static_cast<float*>(to.data()));
}

}  // namespace zero::cuda
