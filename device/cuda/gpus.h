// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

/// The GPUs that the driver lists, the GPU of each rank, and the versions of CUDA.
namespace zero::cuda {

/// Options::index for rank `local_rank` of a host: that number, or 0 if the process sees only one
/// GPU, which its launcher chose (CUDA_VISIBLE_DEVICES, a control group). Throws zero::Error if the
/// process sees several, but too few; if it sees none, open() reports why.
int index_of_rank(int local_rank);

/// "GPU-3d1c02fe-...": the UUID of GPU `index`, unique among all machines. Throws as open() does.
std::string uuid_of(int index);

/// Why this build cannot compute on a GPU, and how to get one that can.
struct MissingCode {
  std::string why;     ///< names the GPU, its capability and the architectures of the build
  std::string remedy;  ///< "configure with -DZERO_CUDA_ARCHITECTURES=80-real"
};
/// Nothing if this build has code for GPU `index`, or if no such GPU is visible.
std::optional<MissingCode> missing_code(int index);

/// "13.0": the version of this build's runtime, or why it has none and how to get one.
std::string runtime_version();
/// "13.0": the newest version that the machine's driver supports, or "none".
std::string driver_version();

}  // namespace zero::cuda
