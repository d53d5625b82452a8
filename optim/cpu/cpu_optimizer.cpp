// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/cpu/cpu_optimizer.cpp"
#include <hwy/foreach_target.h>
// Highway requires this include after foreach_target.
#include <hwy/highway.h>

#include "device/cpu/dispatch.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vector_io-inl.h"
#include "optim/update.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

#include "optim/update_rules.inc"

using F = hn::ScalableTag<float>;
using Lane = hn::Vec<F>;

struct VectorOps {
  Lane set(float value) const { return hn::Set(F(), value); }
  Lane sqrt(Lane value) const { return hn::Sqrt(value); }
};

/// Loads and stores of one vector of elements, the whole vector or only its first elements; the
/// arithmetic between is the same.
struct All {
  template <typename T>
  Lane load(const T* from) const {
    return load_floats(F(), from);
  }
  template <typename T>
  void store(Lane value, T* to) const {
    store_rounded(F(), value, to);
  }
};

struct First {
  std::size_t count;
  template <typename T>
  Lane load(const T* from) const {
    return load_some_floats(F(), from, count);
  }
  template <typename T>
  void store(Lane value, T* to) const {
    store_some_rounded(F(), value, to, count);
  }
};

struct NoCopy {};

template <class Rule, typename Gradient, typename Copy>
class Sweep {
 public:
  Sweep(const Rule& rule, const UpdateMemory& memory)
      : rule_(rule),
        memory_(memory),
        gradient_(static_cast<const Gradient*>(memory.gradient)),
        compute_(static_cast<Copy*>(memory.compute)) {}

  void run(std::int64_t begin, std::int64_t end) const {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(F()));
    std::int64_t i = begin;
    for (; i + lanes <= end; i += lanes) update(i, All{});
    if (i < end) update(i, First{static_cast<std::size_t>(end - i)});
  }

 private:
  template <class Access>
  HWY_INLINE void update(std::int64_t i, Access access) const {
    const F f;
    Lane parameter = access.load(memory_.master + i);
    const Lane gradient = access.load(gradient_ + i);
    Lane moment0 = hn::Zero(f);
    Lane moment1 = hn::Zero(f);
    if constexpr (Rule::kMoments > 0) moment0 = access.load(memory_.moment0 + i);
    if constexpr (Rule::kMoments > 1) moment1 = access.load(memory_.moment1 + i);
    rule_(parameter, gradient, moment0, moment1);
    access.store(parameter, memory_.master + i);
    if constexpr (Rule::kMoments > 0) access.store(moment0, memory_.moment0 + i);
    if constexpr (Rule::kMoments > 1) access.store(moment1, memory_.moment1 + i);
    if constexpr (!std::is_same_v<Copy, NoCopy>) access.store(parameter, compute_ + i);
  }

  Rule rule_;
  UpdateMemory memory_;
  const Gradient* gradient_;
  Copy* compute_;
};

template <class Rule>
void update_range(const Rule& rule, const UpdateMemory& memory, std::int64_t begin,
                  std::int64_t end) {
  dispatch(memory.gradient_dtype, [&](auto type) {
    using Gradient = typename decltype(type)::type;
    if (memory.compute == nullptr) {
      Sweep<Rule, Gradient, NoCopy>(rule, memory).run(begin, end);
    } else if (memory.compute_dtype == DType::bf16) {
      Sweep<Rule, Gradient, bfloat16>(rule, memory).run(begin, end);
    } else {
      Sweep<Rule, Gradient, float16>(rule, memory).run(begin, end);
    }
  });
}

/// Elements [begin, end) of one update.
void adamw(const AdamConstants& constants, const UpdateMemory& memory, std::int64_t begin,
           std::int64_t end) {
  update_range(AdamWRule<VectorOps>{constants, {}}, memory, begin, end);
}

void adam(const AdamConstants& constants, const UpdateMemory& memory, std::int64_t begin,
          std::int64_t end) {
  update_range(AdamRule<VectorOps>{constants, {}}, memory, begin, end);
}

/// Uses moment0 unless it is null.
void sgd(const SgdConstants& constants, const UpdateMemory& memory, std::int64_t begin,
         std::int64_t end) {
  if (memory.moment0 != nullptr) {
    update_range(MomentumRule<VectorOps>{constants, {}}, memory, begin, end);
  } else {
    update_range(SgdRule<VectorOps>{constants, {}}, memory, begin, end);
  }
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {
namespace cpu {

HWY_EXPORT(adamw);
HWY_EXPORT(adam);
HWY_EXPORT(sgd);

namespace {

constexpr std::int64_t kGrain = 16384;  // elements: half a megabyte of memory traffic

/// Every OptimizerConfig::Kind on the CPU, one pass over memory, as work of the stream that
/// update() is given.
class CpuOptimizer final : public Optimizer {
 public:
  CpuOptimizer(const OptimizerConfig& config, int threads) : Optimizer(config), threads_(threads) {}

 private:
  void do_update(Stream& stream, const UpdateArguments& arguments) override {
    using Kind = OptimizerConfig::Kind;
    if (config().kind == Kind::sgd) {
      return submit(stream, arguments, sgd_constants(config(), arguments), [](const auto&... all) {
        HWY_DYNAMIC_DISPATCH(sgd)(all...);
      });
    }
    const AdamConstants constants = adam_constants(config(), arguments);
    if (config().kind == Kind::adam) {
      return submit(stream, arguments, constants, [](const auto&... all) {
        HWY_DYNAMIC_DISPATCH(adam)(all...);
      });
    }
    submit(stream, arguments, constants, [](const auto&... all) {
      HWY_DYNAMIC_DISPATCH(adamw)(all...);
    });
  }

  /// Runs kernel(constants, memory, begin, end) for parts that cover the elements.
  template <typename Constants, typename Kernel>
  void submit(Stream& stream, const UpdateArguments& arguments, const Constants& constants,
              Kernel kernel) const {
    stream.submit(name_of(config().kind),
                  [kernel, constants, threads = threads_, memory = memory_of(arguments, moments()),
                   count = arguments.master.count()] {
                    parallel_for(threads, count, kGrain, [&](std::int64_t begin, std::int64_t end) {
                      kernel(constants, memory, begin, end);
                    });
                  });
  }

  int threads_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, int threads) {
  return std::make_unique<CpuOptimizer>(config, threads);
}

}  // namespace cpu

}  // namespace zero
#endif  // HWY_ONCE
