// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/cpu/cpu_optimizer.h"

#include "device/cpu/parallel.h"
#include "optim/cpu/update_kernels.h"

namespace zero::cpu {

namespace {

using Kind = OptimizerConfig::Kind;

constexpr std::int64_t kGrain = 16384;  // elements: half a megabyte of memory traffic

float* moment_of(const UpdateArguments& arguments, std::size_t index) {
  return static_cast<float*>(arguments.moments[index].data());
}

UpdateMemory memory_of(const UpdateArguments& arguments, int moments) {
  return {.master = static_cast<float*>(arguments.master.data()),
          .moment0 = moments > 0 ? moment_of(arguments, 0) : nullptr,
          .moment1 = moments > 1 ? moment_of(arguments, 1) : nullptr,
          .gradient = arguments.gradient.data(),
          .gradient_dtype = arguments.gradient.dtype(),
          .compute = arguments.compute.empty() ? nullptr : arguments.compute.data(),
          .compute_dtype = arguments.compute.dtype()};
}

}  // namespace

int CpuOptimizer::moments() const {
  if (config().kind != Kind::sgd) return 2;
  return config().momentum > 0 ? 1 : 0;
}

std::string_view CpuOptimizer::moment_name(int index) const {
  ZERO_CHECK(index >= 0 && index < moments(), "{}: moment {} of {}", name_of(config().kind), index,
             moments());
  if (config().kind == Kind::sgd) return "momentum_buffer";
  return index == 0 ? "exp_avg" : "exp_avg_sq";
}

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
