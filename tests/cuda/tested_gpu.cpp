// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "tests/model/ops_harness.h"

namespace zero::testing {
namespace {

/// Every test is skipped, with the reason, where there is no GPU.
class Gpu : public ::testing::Environment {
 public:
  void SetUp() override {
    try {
      open_tested_device();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

const ::testing::Environment* const kGpu = ::testing::AddGlobalTestEnvironment(new Gpu);

}  // namespace

std::unique_ptr<Device> open_tested_device() { return cuda::open(); }

}  // namespace zero::testing
