// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/cpu/cpu_optimizer.h"

#include "device/cpu/parallel.h"
#include "optim/cpu/update_kernels.h"

namespace zero::cpu {

namespace {

using Kind = OptimizerConfig::Kind;

constexpr std::int64_t kGrain = 16384;  // elements: half a megabyte of memory traffic

}  // namespace

void CpuOptimizer::do_update(Stream& stream, const UpdateArguments& arguments) {
  const UpdateMemory memory = memory_of(arguments, moments());
  const std::int64_t count = arguments.master.count();
  const int threads = threads_;
  if (config().kind == Kind::sgd) {
    const SgdConstants constants = sgd_constants(config(), arguments);
    stream.submit("sgd", [=] {
      parallel_for(threads, count, kGrain, [&](std::int64_t begin, std::int64_t end) {
        update_sgd(constants, memory, begin, end);
      });
    });
    return;
  }
  const AdamConstants constants = adam_constants(config(), arguments);
  const auto kernel = config().kind == Kind::adamw ? update_adamw : update_adam;
  stream.submit(name_of(config().kind), [=] {
    parallel_for(threads, count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      kernel(constants, memory, begin, end);
    });
  });
}

}  // namespace zero::cpu
