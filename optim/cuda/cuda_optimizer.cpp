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
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config) {
  return std::make_unique<CudaOptimizer>(config);
}

}  // namespace zero::cuda
