// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/collectives.h"
#include "bench/limits.h"
#include "bench/section.h"

namespace zero::bench {
namespace {

/// What this machine can do at most: products, memory, the link between ranks.
class Limits final : public Section {
 public:
  std::string name() const override { return "limits"; }
  std::string summary() const override {
    return "product rate, memory bandwidth, link between ranks";
  }
  void run(Context& context) override {
    context.alone([&] { measure_products(context.threads(), context.report()); });
    const MemoryRates& memory = context.memory();
    measure_collectives(context.communicator(), link_cases(), memory, context.report());
  }
};

}  // namespace

std::unique_ptr<Section> limits_section() { return std::make_unique<Limits>(); }

}  // namespace zero::bench
