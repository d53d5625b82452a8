// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/ops_harness.h"

namespace zero::testing {

std::shared_ptr<Device> open_tested_device() { return cpu::open({.threads = 1}); }

}  // namespace zero::testing
