// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "optim/optimizer.h"

namespace zero::cpu {

/// Every OptimizerConfig::Kind on the CPU, one pass over memory on `threads` threads, as work of
/// the stream that update() is given.
class CpuOptimizer final : public Optimizer {
 public:
  CpuOptimizer(const OptimizerConfig& config, int threads) : Optimizer(config), threads_(threads) {}

 private:
  void do_update(Stream& stream, const UpdateArguments& arguments) override;

  int threads_;
};

}  // namespace zero::cpu
