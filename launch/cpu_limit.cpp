// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/cpu_limit.h"

#include <fmt/format.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>

#include "base/error.h"

namespace zero {
namespace {

constexpr const char* kVariable = "ZERO_MAX_CPU_ISA";

struct Limit {
  std::string_view name;
  dnnl::cpu_isa products;
  std::int64_t beyond;  ///< of Highway's targets; on x86 the better ones are the lower bits
};
constexpr std::array<Limit, 4> kLimits{{{"AVX2", dnnl::cpu_isa::avx2, HWY_AVX2 - 1},
                                        {"AVX512", dnnl::cpu_isa::avx512_core, 0},
                                        {"AVX512_BF16", dnnl::cpu_isa::avx512_core_bf16, 0},
                                        {"AMX", dnnl::cpu_isa::avx512_core_amx, 0}}};

}  // namespace

void limit_cpu(const Environment& environment) {
  const auto wanted = environment(kVariable);
  if (!wanted) return;
  const auto* const limit = std::ranges::find(kLimits, *wanted, &Limit::name);
  ZERO_CHECK(limit != kLimits.end(),
             "{} is \"{}\"; expected AVX2, AVX512, AVX512_BF16 or AMX, or unset it", kVariable,
             *wanted);
  // Ours would replace oneDNN's, which may be the lower one.
  for (const char* const other : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    ZERO_CHECK(!environment(other), "{} and {} are both set; set {} alone, which limits oneDNN too",
               kVariable, other, kVariable);
  }
  ZERO_CHECK(dnnl::set_max_cpu_isa(limit->products) == dnnl::status::success,
             "{} is \"{}\", but oneDNN cannot be limited here; unset it", kVariable, *wanted);
  if (limit->beyond != 0) hwy::DisableTargets(limit->beyond);
}

std::string cpu_limit_text(const Environment& environment) {
  const auto limit = environment(kVariable);
  return limit ? fmt::format(" ({}={})", kVariable, *limit) : "";
}

}  // namespace zero
