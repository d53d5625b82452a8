// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "device/device.h"

namespace zero {

/// The version of the library.
std::string version();
/// What computes on devices of this kind, down to what may round otherwise: the vector
/// instructions, or the versions of a GPU's libraries.
std::string kernels_text(DeviceKind device);
/// A Highway target as people call the instructions: "AVX2", "AVX-512 (Highway's target AVX3_DL)".
std::string instructions_text(std::string_view target);

/// Versions of the program, of MPI and, for a run on GPUs, of the libraries that compute there (or
/// the reason why this build has none), the vector instructions in use on this machine, and their
/// limit. Must be equal on all ranks of a job.
std::string libraries_text(DeviceKind device);
/// libraries_text() of a run on GPUs and the driver's version, which may differ between ranks.
std::string version_text();

}  // namespace zero
