// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/stream.h"
#include "optim/cuda/update.h"
#include "optim/optimizer.h"

namespace zero::cuda {
namespace {

using Kind = OptimizerConfig::Kind;

/// Every OptimizerConfig::Kind on a CUDA device: one kernel for an update.
class CudaOptimizer final : public Optimizer {
 public:
  explicit CudaOptimizer(const OptimizerConfig& config) : Optimizer(config) {}

 private:
  void do_update(Stream& stream, const UpdateArguments& arguments) override {
    if (config().moments != MomentFormat::fp32 && moments() > 0)
      return update_small(stream, arguments);
    const UpdateMemory memory = memory_of(arguments, moments());
    const std::int64_t count = arguments.master.count();
    stream.submit(name_of(config().kind), [&] {
      if (config().kind == Kind::sgd) {
        return update_sgd(sgd_constants(config(), arguments), memory, count, native(stream));
      }
      const auto update = config().kind == Kind::adamw ? update_adamw : update_adam;
      update(adam_constants(config(), arguments), memory, count, native(stream));
    });
  }

  void update_small(Stream& stream, const UpdateArguments& arguments) const {
    const UpdateMemory memory = memory_of(arguments, 0);
    const SmallMoments small = small_moments_of(arguments, config().moments, moments());
    stream.submit(name_of(config().kind), [&] {
      const Extent extent{arguments.master.count(), native(stream)};
      if (config().kind == Kind::sgd)
        return update_small_sgd(sgd_constants(config(), arguments), memory, small, extent);
      const AdamConstants constants = adam_constants(config(), arguments);
      if (config().kind == Kind::adam) return update_small_adam(constants, memory, small, extent);
      update_small_adamw(constants, memory, small, extent);
    });
  }

  void do_decode(Stream& stream, const CodedMoment& from, const View& to) override {
    stream.submit("decode", [&] { cuda::decode(from, to, native(stream)); });
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config) {
  return std::make_unique<CudaOptimizer>(config);
}

}  // namespace zero::cuda
