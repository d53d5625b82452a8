// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/error.h"
#include "tests/ops/ops_harness.h"

namespace zero::testing {
namespace {

std::shared_ptr<Device> shared_gpu;

/// Every test is skipped, with the reason, where there is no GPU. GoogleTest then counts it as
/// passed: the line is what ctest knows a skipped test by.
class Gpu : public ::testing::Environment {
 public:
  void SetUp() override {
    try {
      shared_gpu = cuda::open();
    } catch (const Error& error) {
      fmt::print("[  SKIPPED ] {}\n", error.what());
      GTEST_SKIP();
    }
  }
  void TearDown() override { shared_gpu.reset(); }  // before the runtime ends
};

const ::testing::Environment* const kGpu = ::testing::AddGlobalTestEnvironment(new Gpu);

}  // namespace

std::shared_ptr<Device> open_tested_device() {
  ZERO_CHECK(shared_gpu != nullptr, "there is no GPU; the tests should have been skipped");
  return shared_gpu;
}

}  // namespace zero::testing
