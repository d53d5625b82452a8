// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/cpu_limit.h"

#include <fmt/format.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "ops/cpu/products.h"

namespace zero {
namespace {

constexpr const char* kVariable = "ZERO_MAX_CPU_ISA";

struct Limit {
  std::string_view name;
  cpu::Bf16Instructions products;
  std::int64_t beyond;  ///< Highway targets beyond the limit; on x86, lower bits are better
};
constexpr std::array<Limit, 4> kLimits{{{"AVX2", cpu::Bf16Instructions::none, HWY_AVX2 - 1},
                                        {"AVX512", cpu::Bf16Instructions::none, 0},
                                        {"AVX512_BF16", cpu::Bf16Instructions::pairs, 0},
                                        {"AMX", cpu::Bf16Instructions::tiles, 0}}};

}  // namespace

void limit_cpu(const Environment& environment) {
  const auto wanted = environment(kVariable);
  if (!wanted) return;
  const auto* const limit = std::ranges::find(kLimits, *wanted, &Limit::name);
  ZERO_CHECK(limit != kLimits.end(),
             "{} is \"{}\"; expected AVX2, AVX512, AVX512_BF16 or AMX, or unset it", kVariable,
             *wanted);
  cpu::limit_bf16_instructions(limit->products);
  if (limit->beyond != 0) hwy::DisableTargets(limit->beyond);
}

std::string cpu_limit_text(const Environment& environment) {
  const auto limit = environment(kVariable);
  return limit ? fmt::format(" ({}={})", kVariable, *limit) : "";
}

}  // namespace zero
