// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/gpus.h"
#include "device/device.h"

namespace zero::cuda {

namespace {

constexpr std::string_view kNone =
    "this build has no CUDA backend; configure with -DZERO_CUDA=ON (launch/install_cuda.sh brings "
    "CUDA), or use a CPU device";

}  // namespace

std::unique_ptr<Device> open(const Options& /*options*/) { fail("{}", kNone); }

int visible_devices() { return 0; }

MemoryCapacity capacity_of(int /*index*/) { fail("{}", kNone); }

int index_of_rank(int local_rank) { return local_rank; }

std::string uuid_of(int /*index*/) { fail("{}", kNone); }

std::optional<MissingCode> missing_code(int /*index*/) { return std::nullopt; }

std::string runtime_version() {
  return "not in this build; configure with -DZERO_CUDA=ON (launch/install_cuda.sh brings CUDA)";
}

std::string driver_version() { return "none that this build could ask for"; }

}  // namespace zero::cuda
