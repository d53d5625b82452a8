// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/product_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "bench/product_probe.h"
#include "launch/telemetry/machine_limits.h"

namespace zero::bench {
namespace {

class OldProcessor : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_EQ(dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2), dnnl::status::success);
  }
};

TEST_F(OldProcessor, HasTheProductRateOfFp32ForBf16) {
  const std::vector<ProbeShape> shapes{{"small", 64, 96, 64}, {"other", 96, 64, 64}};
  ProductRate bf16(DType::bf16, 1, shapes);
  EXPECT_EQ(bf16.dtype(), DType::fp32);
  EXPECT_EQ(bf16.remark(), ", limit in fp32");
  EXPECT_EQ(bf16.rate(), 0);
  EXPECT_GT(bf16.sample(2), 0);
  EXPECT_GT(bf16.rate(), 0);
  EXPECT_EQ(ProductRate(DType::fp32, 1, shapes).remark(), "");
}

TEST_F(OldProcessor, HasNoProbeOfBf16) {
  EXPECT_FALSE(ProductProbe::available(DType::bf16));
  EXPECT_TRUE(ProductProbe::available(DType::fp32));
  EXPECT_THAT(
      [] {
        ProductProbe({"small", 64, 64, 64}, DType::bf16, ProductProbe::Layout::packed, 1);
      },
      ::testing::ThrowsMessage<Error>(
          ::testing::HasSubstr("oneDNN has no bf16 products on this machine")));
}

TEST_F(OldProcessor, MultipliesAndAddsInRegistersOnEveryThread) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    EXPECT_GT(multiply_add_rate(dtype, 1), 0);
    EXPECT_GT(multiply_add_rate(dtype, 2), 0);
  }
}

TEST_F(OldProcessor, IsLimitedByOneVariableAlone) {
  const auto only = [](std::map<std::string, std::string> variables) -> Environment {
    return [variables](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      if (found == variables.end()) return std::nullopt;
      return found->second;
    };
  };
  EXPECT_NO_THROW(limit_onednn(only({{"ONEDNN_MAX_CPU_ISA", "AVX2"}})));
  EXPECT_THAT(
      [&] {
        limit_onednn(only({{"ZERO_MAX_CPU_ISA", "AMX"}, {"ONEDNN_MAX_CPU_ISA", "AVX2"}}));
      },
      ::testing::ThrowsMessage<Error>(
          ::testing::HasSubstr("ZERO_MAX_CPU_ISA and ONEDNN_MAX_CPU_ISA are both set")));
  EXPECT_TRUE(ProductProbe::available(DType::fp32));  // behind the first product it is too late
  EXPECT_THAT(
      [&] {
        limit_onednn(only({{"ZERO_MAX_CPU_ISA", "AMX"}}));
      },
      ::testing::ThrowsMessage<Error>(::testing::HasSubstr("oneDNN cannot be limited")));
}

}  // namespace
}  // namespace zero::bench
