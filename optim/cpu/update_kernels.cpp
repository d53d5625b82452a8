// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/cpu/update_kernels.cpp"  // this file, once per instruction set
#include <hwy/foreach_target.h>
// foreach_target comes first
#include <hwy/highway.h>

#include <cstring>
#include <type_traits>

#include "optim/cpu/half-inl.h"
#include "optim/cpu/update_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

#include "optim/update_rules.inc"

using F = hn::ScalableTag<float>;
using Lane = hn::Vec<F>;

struct VectorOps {
  Lane set(float value) const { return hn::Set(F(), value); }
  Lane sqrt(Lane value) const { return hn::Sqrt(value); }
};

struct NoCopy {};

/// Where one vector of elements lies.
template <typename Gradient, typename Copy>
struct Place {
  float* master;
  float* moment0;
  float* moment1;
  const Gradient* gradient;
  Copy* compute;
};

template <class Rule, typename Gradient, typename Copy>
HWY_INLINE void update_vector(const Rule& rule, const Place<Gradient, Copy>& at, std::int64_t i) {
  const F f;
  Lane parameter = hn::LoadU(f, at.master + i);
  const Lane gradient = load_as_float(f, at.gradient + i);
  Lane moment0 = hn::Zero(f);
  Lane moment1 = hn::Zero(f);
  if constexpr (Rule::kMoments > 0) moment0 = hn::LoadU(f, at.moment0 + i);
  if constexpr (Rule::kMoments > 1) moment1 = hn::LoadU(f, at.moment1 + i);
  rule(parameter, gradient, moment0, moment1);
  hn::StoreU(parameter, f, at.master + i);
  if constexpr (Rule::kMoments > 0) hn::StoreU(moment0, f, at.moment0 + i);
  if constexpr (Rule::kMoments > 1) hn::StoreU(moment1, f, at.moment1 + i);
  if constexpr (!std::is_same_v<Copy, NoCopy>) store_from_float(f, parameter, at.compute + i);
}

/// The last elements, fewer than a vector: the same vector arithmetic, on copies.
template <class Rule, typename Gradient, typename Copy>
void update_tail(const Rule& rule, const Place<Gradient, Copy>& at, std::int64_t i,
                 std::size_t count) {
  constexpr std::size_t kMost = HWY_MAX_BYTES / sizeof(float);
  float master[kMost] = {};
  float moment0[kMost] = {};
  float moment1[kMost] = {};
  Gradient gradient[kMost] = {};
  Copy compute[kMost] = {};
  std::memcpy(master, at.master + i, count * sizeof(float));
  std::memcpy(gradient, at.gradient + i, count * sizeof(Gradient));
  if constexpr (Rule::kMoments > 0) std::memcpy(moment0, at.moment0 + i, count * sizeof(float));
  if constexpr (Rule::kMoments > 1) std::memcpy(moment1, at.moment1 + i, count * sizeof(float));
  update_vector(rule, Place<Gradient, Copy>{master, moment0, moment1, gradient, compute}, 0);
  std::memcpy(at.master + i, master, count * sizeof(float));
  if constexpr (Rule::kMoments > 0) std::memcpy(at.moment0 + i, moment0, count * sizeof(float));
  if constexpr (Rule::kMoments > 1) std::memcpy(at.moment1 + i, moment1, count * sizeof(float));
  if constexpr (!std::is_same_v<Copy, NoCopy>) {
    std::memcpy(at.compute + i, compute, count * sizeof(Copy));
  }
}

/// Elements [begin, end).
struct Span {
  std::int64_t begin;
  std::int64_t end;
};

template <class Rule, typename Gradient, typename Copy>
void update_span(const Rule& rule, const cpu::UpdateMemory& memory, Span span) {
  const Place<Gradient, Copy> at = {memory.master, memory.moment0, memory.moment1,
                                    static_cast<const Gradient*>(memory.gradient),
                                    static_cast<Copy*>(memory.compute)};
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(F()));
  std::int64_t i = span.begin;
  for (; i + lanes <= span.end; i += lanes) update_vector(rule, at, i);
  if (i < span.end) update_tail(rule, at, i, static_cast<std::size_t>(span.end - i));
}

template <class Rule, typename Gradient>
void with_gradient(const Rule& rule, const cpu::UpdateMemory& memory, Span span) {
  if (memory.compute == nullptr) {
    update_span<Rule, Gradient, NoCopy>(rule, memory, span);
  } else if (memory.compute_dtype == DType::bf16) {
    update_span<Rule, Gradient, bfloat16>(rule, memory, span);
  } else {
    update_span<Rule, Gradient, float16>(rule, memory, span);
  }
}

template <class Rule>
void with_rule(const Rule& rule, const cpu::UpdateMemory& memory, Span span) {
  if (memory.gradient_dtype == DType::fp32) {
    with_gradient<Rule, float>(rule, memory, span);
  } else if (memory.gradient_dtype == DType::bf16) {
    with_gradient<Rule, bfloat16>(rule, memory, span);
  } else {
    with_gradient<Rule, float16>(rule, memory, span);
  }
}

void adamw(const AdamConstants& constants, const cpu::UpdateMemory& memory, std::int64_t begin,
           std::int64_t end) {
  with_rule(AdamWRule<VectorOps>{constants, {}}, memory, {begin, end});
}

void adam(const AdamConstants& constants, const cpu::UpdateMemory& memory, std::int64_t begin,
          std::int64_t end) {
  with_rule(AdamRule<VectorOps>{constants, {}}, memory, {begin, end});
}

void sgd(const SgdConstants& constants, const cpu::UpdateMemory& memory, std::int64_t begin,
         std::int64_t end) {
  if (memory.moment0 != nullptr) {
    with_rule(MomentumRule<VectorOps>{constants, {}}, memory, {begin, end});
  } else {
    with_rule(SgdRule<VectorOps>{constants, {}}, memory, {begin, end});
  }
}

const char* target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {

HWY_EXPORT(adamw);
HWY_EXPORT(adam);
HWY_EXPORT(sgd);
HWY_EXPORT(target);

namespace cpu {

void update_adamw(const AdamConstants& constants, const cpu::UpdateMemory& memory,
                  std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(adamw)(constants, memory, begin, end);
}

void update_adam(const AdamConstants& constants, const cpu::UpdateMemory& memory,
                 std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(adam)(constants, memory, begin, end);
}

void update_sgd(const SgdConstants& constants, const cpu::UpdateMemory& memory, std::int64_t begin,
                std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(sgd)(constants, memory, begin, end);
}

}  // namespace cpu

std::string_view simd_target() { return HWY_DYNAMIC_DISPATCH(target)(); }

}  // namespace zero
#endif  // HWY_ONCE
