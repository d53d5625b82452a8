// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// An update of a range of elements, one pass in vectors, for any memory format of the moments.
// Included inside Highway's foreach_target mechanism, once per target.

#if defined(ZERO_OPTIM_CPU_SWEEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZERO_OPTIM_CPU_SWEEP_INL_H_
#undef ZERO_OPTIM_CPU_SWEEP_INL_H_
#else
#define ZERO_OPTIM_CPU_SWEEP_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "device/cpu/dispatch.h"
#include "device/cpu/vector_io-inl.h"
#include "optim/update.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

#include "optim/update_rules.inc"

using F = hn::ScalableTag<float>;
using Lane = hn::Vec<F>;
using Bits = hn::Vec<hn::RebindToUnsigned<F>>;

/// Two vectors on which each operation is done in turn: an update is a long chain of operations,
/// and processors do not look far enough ahead to overlap chains that follow each other.
template <class V>
struct Two {
  V a;
  V b;
  friend HWY_INLINE Two operator+(Two x, Two y) { return {x.a + y.a, x.b + y.b}; }
  friend HWY_INLINE Two operator-(Two x, Two y) { return {x.a - y.a, x.b - y.b}; }
  friend HWY_INLINE Two operator*(Two x, Two y) { return {x.a * y.a, x.b * y.b}; }
  friend HWY_INLINE Two operator/(Two x, Two y) { return {x.a / y.a, x.b / y.b}; }
  friend HWY_INLINE Two operator+(Two x, V y) { return {x.a + y, x.b + y}; }
  friend HWY_INLINE Two operator*(Two x, V y) { return {x.a * y, x.b * y}; }
  friend HWY_INLINE Two operator*(V x, Two y) { return {x * y.a, x * y.b}; }
};

struct VectorOps {
  HWY_INLINE Lane set(float value) const { return hn::Set(F(), value); }
  HWY_INLINE Lane sqrt(Lane value) const { return hn::Sqrt(value); }
  HWY_INLINE Two<Lane> sqrt(Two<Lane> value) const {
    return {hn::Sqrt(value.a), hn::Sqrt(value.b)};
  }
};

// Accesses: loads and stores of two vectors of elements, one, or only the first elements of one;
// the arithmetic between is the same. of_each(make) gives what make(offset) gives for each vector.

struct All {
  template <class Make>
  HWY_INLINE auto of_each(Make make) const {
    return make(0);
  }
  template <typename T>
  HWY_INLINE Lane load(const T* from) const {
    return load_floats(F(), from);
  }
  template <typename T>
  HWY_INLINE void store(Lane value, T* to) const {
    store_rounded(F(), value, to);
  }
  /// The low half of each lane.
  HWY_INLINE void store_low(Bits bits, bfloat16* to) const { store_halves(F(), bits, to); }
};

struct Pair {
  template <class Make>
  HWY_INLINE auto of_each(Make make) const {
    return Two<decltype(make(0))>{make(0), make(static_cast<std::int64_t>(hn::Lanes(F())))};
  }
  template <typename T>
  HWY_INLINE Two<Lane> load(const T* from) const {
    return of_each([&](std::int64_t offset) HWY_ATTR { return load_floats(F(), from + offset); });
  }
  template <typename T>
  HWY_INLINE void store(Two<Lane> value, T* to) const {
    store_rounded(F(), value.a, to);
    store_rounded(F(), value.b, to + hn::Lanes(F()));
  }
  HWY_INLINE void store(Two<Lane> value, bfloat16* to) const {
    store_rounded(F(), value.a, value.b, to);
  }
  HWY_INLINE void store_low(Two<Bits> bits, bfloat16* to) const {
    store_halves(F(), bits.a, bits.b, to);
  }
};

struct First {
  std::size_t count;
  template <class Make>
  HWY_INLINE auto of_each(Make make) const {
    return make(0);
  }
  template <typename T>
  HWY_INLINE Lane load(const T* from) const {
    return load_some_floats(F(), from, count);
  }
  template <typename T>
  HWY_INLINE void store(Lane value, T* to) const {
    store_some_rounded(F(), value, to, count);
  }
  HWY_INLINE void store_low(Bits bits, bfloat16* to) const {
    HWY_ALIGN bfloat16 padded[HWY_MAX_BYTES / sizeof(float)];
    store_halves(F(), bits, padded);
    std::memcpy(to, padded, count * sizeof(bfloat16));
  }
};

/// Elements that an update works on at a time: few enough that those in other dtypes can be widened
/// before it and rounded behind it in the first cache, so that the update itself is compiled for
/// fp32 alone.
constexpr std::int64_t kAtATime = 1024;

template <typename From, typename To>
void convert(const From* from, std::int64_t count, To* to) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(F()));
  std::int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) Pair().store(Pair().load(from + i), to + i);
  if (i + lanes <= count) {
    All().store(All().load(from + i), to + i);
    i += lanes;
  }
  const First rest{static_cast<std::size_t>(count - i)};
  if (i < count) rest.store(rest.load(from + i), to + i);
}

/// `count` elements from `begin` on: their masters, and their gradients in fp32.
struct Elements {
  float* master;
  const float* gradient;
};

/// Gradients of other dtypes are widened into `room`.
inline Elements elements_of(const UpdateMemory& memory, std::int64_t begin, std::int64_t count,
                            float* room) {
  dispatch(memory.gradient_dtype, [&](auto type) {
    using Gradient = typename decltype(type)::type;
    const Gradient* gradient = static_cast<const Gradient*>(memory.gradient) + begin;
    if constexpr (std::is_same_v<Gradient, float>) {
      room = const_cast<float*>(gradient);  // only read
    } else {
      convert(gradient, count, room);
    }
  });
  return {memory.master + begin, room};
}

/// The copy of `count` new values from `begin` on, if one is wanted.
inline void store_copy(const UpdateMemory& memory, std::int64_t begin, std::int64_t count) {
  if (memory.compute == nullptr) return;
  const float* master = memory.master + begin;
  if (memory.compute_dtype == DType::bf16) {
    convert(master, count, static_cast<bfloat16*>(memory.compute) + begin);
  } else {
    convert(master, count, static_cast<float16*>(memory.compute) + begin);
  }
}

/// `Moments` loads moment kMoment of the elements from i on, and stores both of them; `Access` is
/// Pair, All or First.
///
/// A parameter's step is a long chain (a root, a division), and a processor looks ahead over about
/// two vectors: so the moments of the next pair move before a pair's step is taken.
template <class Rule, class Moments>
struct Sweep {
  Rule rule;
  Elements memory;
  Moments moments;

  HWY_INLINE void run(std::int64_t end) const {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(F()));
    std::int64_t i = 0;
    if (i + 2 * lanes <= end) {
      auto moved = move(i, Pair{});
      for (i += 2 * lanes; i + 2 * lanes <= end; i += 2 * lanes) {
        const auto next = move(i, Pair{});
        step(i - 2 * lanes, Pair{}, moved);
        moved = next;
      }
      step(i - 2 * lanes, Pair{}, moved);
    }
    if (i + lanes <= end) {
      step(i, All{}, move(i, All{}));
      i += lanes;
    }
    const First rest{static_cast<std::size_t>(end - i)};
    if (i < end) step(i, rest, move(i, rest));
  }

 private:
  /// The operands of a step beside the parameter: the gradient if the rule has no moments.
  template <class V>
  struct Moved {
    V first;
    V second;
  };

  template <class Access>
  HWY_INLINE auto move(std::int64_t i, Access access) const {
    const auto gradient = access.load(memory.gradient + i);
    Moved<std::decay_t<decltype(gradient)>> moved{gradient, gradient};
    if constexpr (Rule::kMoments > 0) {
      moved.first = moments.template load<0>(access, i);
      if constexpr (Rule::kMoments > 1) moved.second = moments.template load<1>(access, i);
      rule.move(access.load(memory.master + i), gradient, moved.first, moved.second);
      moments.template store<Rule::kMoments>(access, moved.first, moved.second, i);
    }
    return moved;
  }
  template <class Access, class V>
  HWY_INLINE void step(std::int64_t i, Access access, const Moved<V>& moved) const {
    const auto parameter = access.load(memory.master + i);
    access.store(rule.stepped(parameter, moved.first, moved.second), memory.master + i);
  }
};

/// Updates elements [begin, end). moments.from(i) are the moments of the elements from i on.
template <class Rule, class Moments>
void update_range(const Rule& rule, const UpdateMemory& memory, const Moments& moments,
                  std::int64_t begin, std::int64_t end) {
  alignas(64) float room[kAtATime];
  while (begin < end) {
    const std::int64_t count = std::min(kAtATime, end - begin);
    // Copies, in registers: stores to memory could change constants behind a reference.
    const Sweep<Rule, Moments> sweep{rule, elements_of(memory, begin, count, room),
                                     moments.from(begin)};
    sweep.run(count);
    store_copy(memory, begin, count);
    begin += count;
  }
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ZERO_OPTIM_CPU_SWEEP_INL_H_
