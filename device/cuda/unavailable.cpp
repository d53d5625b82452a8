// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

namespace zero::cuda {

std::unique_ptr<Device> open(const Options& /*options*/) {
  fail(
      "this build has no CUDA backend; configure with -DZERO_CUDA=ON (launch/install_cuda.sh "
      "brings "
      "CUDA), or use a CPU device");
}

int visible_devices() { return 0; }

}  // namespace zero::cuda
