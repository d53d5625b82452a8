// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/ops.h"

#include "bench/section.h"

namespace zero::bench {
namespace {

/// What a training step is made of, piece by piece.
class OpsSection final : public Section {
 public:
  std::string name() const override { return "ops"; }
  std::string summary() const override {
    return "what a training step consists of, each against products or memory";
  }
  void run(Context& context) override {
    const MemoryRates& memory = context.memory();
    context.alone([&] { measure_device_kernels(context.threads(), memory, context.report()); });
  }
};

}  // namespace

std::unique_ptr<Section> ops_section() { return std::make_unique<OpsSection>(); }

}  // namespace zero::bench
