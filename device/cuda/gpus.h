// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

/// The GPUs that the driver shows, which of them a rank takes, and the versions of CUDA.
namespace zero::cuda {

/// Options::index for rank `local_rank` of a host: that number, or 0 where the process sees one GPU
/// alone, which its launcher chose for it (CUDA_VISIBLE_DEVICES, a control group). Throws
/// zero::Error where the process sees several, and too few; where it sees none, open() says why.
int index_of_rank(int local_rank);

/// "GPU-3d1c02fe-...": the UUID of GPU `index`, unique among all machines. Throws as open() does.
std::string uuid_of(int index);

/// "13.0": of the runtime that this build has, or why it has none and how to get it.
std::string runtime_version();
/// "13.0": what the machine's driver takes, or "none".
std::string driver_version();

}  // namespace zero::cuda
