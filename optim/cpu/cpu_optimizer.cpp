// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/cpu/cpu_optimizer.cpp"
#include <hwy/foreach_target.h>
// Highway requires this include after foreach_target.
#include <hwy/highway.h>

#include "device/cpu/parallel.h"
#include "optim/cpu/small_moments.h"
#include "optim/cpu/sweep-inl.h"
#include "optim/update.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

/// Moments in fp32, at the pointers of UpdateMemory.
struct PlainMoments {
  float* values[2];

  PlainMoments from(std::int64_t begin) const {
    return {{values[0] == nullptr ? nullptr : values[0] + begin,
             values[1] == nullptr ? nullptr : values[1] + begin}};
  }

  template <int kMoment, class Access>
  HWY_INLINE auto load(Access access, std::int64_t i) const {
    return access.load(values[kMoment] + i);
  }
  template <int kMoments, class Access, class V>
  HWY_INLINE void store(Access access, V first, V second, std::int64_t i) const {
    access.store(first, values[0] + i);
    if constexpr (kMoments > 1) access.store(second, values[1] + i);
  }
};

template <class Rule>
void update_plain(const Rule& rule, const UpdateMemory& memory, std::int64_t begin,
                  std::int64_t end) {
  update_range(rule, memory, PlainMoments{{memory.moment0, memory.moment1}}, begin, end);
}

/// Elements [begin, end) of one update.
void adamw(const AdamConstants& constants, const UpdateMemory& memory, std::int64_t begin,
           std::int64_t end) {
  update_plain(AdamWRule<VectorOps>{constants, {}}, memory, begin, end);
}

void adam(const AdamConstants& constants, const UpdateMemory& memory, std::int64_t begin,
          std::int64_t end) {
  update_plain(AdamRule<VectorOps>{constants, {}}, memory, begin, end);
}

/// Uses moment0 unless it is null.
void sgd(const SgdConstants& constants, const UpdateMemory& memory, std::int64_t begin,
         std::int64_t end) {
  if (memory.moment0 != nullptr) {
    update_plain(MomentumRule<VectorOps>{constants, {}}, memory, begin, end);
  } else {
    update_plain(SgdRule<VectorOps>{constants, {}}, memory, begin, end);
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
static_assert(kGrain % kMomentBlock == 0, "a thread updates whole blocks");

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
    if (config().moments != MomentFormat::fp32 && moments() > 0)
      return submit_small(stream, arguments, constants);
    stream.submit(name_of(config().kind),
                  [kernel, constants, threads = threads_, memory = memory_of(arguments, moments()),
                   count = arguments.master.count()] {
                    parallel_for(threads, count, kGrain, [&](std::int64_t begin, std::int64_t end) {
                      kernel(constants, memory, begin, end);
                    });
                  });
  }

  /// The same for moments in a small format.
  template <typename Constants>
  void submit_small(Stream& stream, const UpdateArguments& arguments,
                    const Constants& constants) const {
    stream.submit(
        name_of(config().kind),
        [constants, kind = config().kind, threads = threads_, memory = memory_of(arguments, 0),
         small = small_moments_of(arguments, config().moments, moments()),
         count = arguments.master.count()] {
          parallel_for(threads, count, kGrain, [&](std::int64_t begin, std::int64_t end) {
            if constexpr (std::is_same_v<Constants, SgdConstants>) {
              update_small_sgd(constants, memory, small, begin, end);
            } else if (kind == OptimizerConfig::Kind::adam) {
              update_small_adam(constants, memory, small, begin, end);
            } else {
              update_small_adamw(constants, memory, small, begin, end);
            }
          });
        });
  }

  void do_decode(Stream& stream, const CodedMoment& from, const View& to) override {
    stream.submit("decode", [from, to, threads = threads_] {
      parallel_for(threads, to.count(), kGrain, [&](std::int64_t begin, std::int64_t end) {
        decode_moment(from.slice(begin, end - begin), static_cast<float*>(to.data()) + begin);
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
