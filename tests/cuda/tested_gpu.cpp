// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/error.h"
#include "tests/model/ops_harness.h"

namespace zero::testing {
namespace {

/// Every test is skipped, with the reason, where there is no GPU. GoogleTest then counts it as
/// passed: the line is what ctest knows a skipped test by.
class Gpu : public ::testing::Environment {
 public:
  void SetUp() override {
    try {
      open_tested_device();
    } catch (const Error& error) {
      fmt::print("[  SKIPPED ] {}\n", error.what());
      GTEST_SKIP();
    }
  }
};

const ::testing::Environment* const kGpu = ::testing::AddGlobalTestEnvironment(new Gpu);

}  // namespace

std::unique_ptr<Device> open_tested_device() { return cuda::open(); }

}  // namespace zero::testing
