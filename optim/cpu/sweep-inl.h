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

#include <cstdint>
#include <cstring>

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
struct Two {
  Lane a;
  Lane b;
  friend HWY_INLINE Two operator+(Two x, Two y) { return {x.a + y.a, x.b + y.b}; }
  friend HWY_INLINE Two operator-(Two x, Two y) { return {x.a - y.a, x.b - y.b}; }
  friend HWY_INLINE Two operator*(Two x, Two y) { return {x.a * y.a, x.b * y.b}; }
  friend HWY_INLINE Two operator/(Two x, Two y) { return {x.a / y.a, x.b / y.b}; }
  friend HWY_INLINE Two operator+(Two x, Lane y) { return x + Two{y, y}; }
  friend HWY_INLINE Two operator*(Two x, Lane y) { return x * Two{y, y}; }
  friend HWY_INLINE Two operator*(Lane x, Two y) { return Two{x, x} * y; }
  friend HWY_INLINE Two operator/(Two x, Lane y) { return x / Two{y, y}; }
};

struct VectorOps {
  HWY_INLINE Lane set(float value) const { return hn::Set(F(), value); }
  HWY_INLINE Lane sqrt(Lane value) const { return hn::Sqrt(value); }
  HWY_INLINE Two sqrt(Two value) const { return {hn::Sqrt(value.a), hn::Sqrt(value.b)}; }
};

// Accesses: loads and stores of two vectors of elements, one, or only the first elements of one;
// the arithmetic between is the same. of_each(make) gives what make(offset) gives for each vector;
// for_each(do, values...) calls do(offset, value of the vector...).

struct All {
  template <class Make>
  HWY_INLINE Lane of_each(Make make) const {
    return make(0);
  }
  template <class Do, class... Values>
  HWY_INLINE void for_each(Do body, const Values&... values) const {
    body(0, values...);
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

struct Pair : All {
  template <class Make>
  HWY_INLINE Two of_each(Make make) const {
    return {make(0), make(static_cast<std::int64_t>(hn::Lanes(F())))};
  }
  template <class Do, class... Values>
  HWY_INLINE void for_each(Do body, const Values&... values) const {
    body(0, values.a...);
    body(static_cast<std::int64_t>(hn::Lanes(F())), values.b...);
  }
};

struct First {
  std::size_t count;
  template <class Make>
  HWY_INLINE Lane of_each(Make make) const {
    return make(0);
  }
  template <class Do, class... Values>
  HWY_INLINE void for_each(Do body, const Values&... values) const {
    body(0, values...);
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

struct NoCopy {};

/// `Moments` loads moment kMoment of the elements from i on, and stores both of them; `Access` is
/// All or First.
template <class Rule, typename Gradient, typename Copy, class Moments>
class Sweep {
 public:
  Sweep(const Rule& rule, const UpdateMemory& memory, const Moments& moments)
      : rule_(rule),
        memory_(memory),
        moments_(moments),
        gradient_(static_cast<const Gradient*>(memory.gradient)),
        compute_(static_cast<Copy*>(memory.compute)) {}

  void run(std::int64_t begin, std::int64_t end) const {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(F()));
    std::int64_t i = begin;
    for (; i + 2 * lanes <= end; i += 2 * lanes) update(i, Pair{});
    for (; i + lanes <= end; i += lanes) update(i, All{});
    if (i < end) update(i, First{static_cast<std::size_t>(end - i)});
  }

 private:
  template <class Access>
  HWY_INLINE void update(std::int64_t i, Access access) const {
    const auto load = [&](const auto* from) HWY_ATTR {
      return access.of_each([&](std::int64_t offset)
                                HWY_ATTR { return access.load(from + offset); });
    };
    auto parameter = load(memory_.master + i);
    const auto gradient = load(gradient_ + i);
    auto moment0 = access.of_each([](std::int64_t) HWY_ATTR { return hn::Zero(F()); });
    auto moment1 = moment0;
    if constexpr (Rule::kMoments > 0)
      moment0 = access.of_each([&](std::int64_t offset) HWY_ATTR {
        return moments_.template load<0>(access, i + offset);
      });
    if constexpr (Rule::kMoments > 1)
      moment1 = access.of_each([&](std::int64_t offset) HWY_ATTR {
        return moments_.template load<1>(access, i + offset);
      });
    rule_(parameter, gradient, moment0, moment1);
    access.for_each(
        [&](std::int64_t offset, Lane value, Lane first, Lane second) HWY_ATTR {
          access.store(value, memory_.master + i + offset);
          moments_.template store<Rule::kMoments>(access, first, second, i + offset);
          if constexpr (!std::is_same_v<Copy, NoCopy>) access.store(value, compute_ + i + offset);
        },
        parameter, moment0, moment1);
  }

  Rule rule_;
  UpdateMemory memory_;
  Moments moments_;
  const Gradient* gradient_;
  Copy* compute_;
};

/// Updates elements [begin, end).
template <class Rule, class Moments>
void update_range(const Rule& rule, const UpdateMemory& memory, const Moments& moments,
                  std::int64_t begin, std::int64_t end) {
  dispatch(memory.gradient_dtype, [&](auto type) {
    using Gradient = typename decltype(type)::type;
    if (memory.compute == nullptr) {
      Sweep<Rule, Gradient, NoCopy, Moments>(rule, memory, moments).run(begin, end);
    } else if (memory.compute_dtype == DType::bf16) {
      Sweep<Rule, Gradient, bfloat16, Moments>(rule, memory, moments).run(begin, end);
    } else {
      Sweep<Rule, Gradient, float16, Moments>(rule, memory, moments).run(begin, end);
    }
  });
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ZERO_OPTIM_CPU_SWEEP_INL_H_
