// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <dnnl.h>
#include <fmt/format.h>

#include "collectives/backends.h"
#include "device/cpu/primitives.h"
#include "launch/process.h"
#include "model/ops.h"

namespace zero {

std::string version_text() {
  const dnnl_version_t* const onednn = dnnl_version();
  return fmt::format("zero {}\nMPI: {}\nNCCL: {}\noneDNN: {}.{}.{}\nvector instructions: {}",
                     ZERO_VERSION, mpi::version(), nccl::version(), onednn->major, onednn->minor,
                     onednn->patch, cpu::simd_target());
}

}  // namespace zero
