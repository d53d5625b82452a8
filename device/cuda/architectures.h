// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

/// For which GPUs a build has code.
namespace zero::cuda {

/// 9.0 of an H100.
struct Capability {
  int major = 0;
  int minor = 0;
};

/// Whether code built for `architectures` runs on a GPU of capability `gpu`. `architectures` is a
/// list as of ZERO_CUDA_ARCHITECTURES, "80-real;90a-real;100", or with commas. Machine code
/// ("-real") runs on later minor versions (not all other kinds of GPUs: the first kernel tells),
/// PTX ("-virtual", or no ending, which is both) on all later GPUs, "90a" on 9.0 alone, "100f" on
/// later minor versions alone. Other words ("native", "all") count as code for every GPU: then the
/// first kernel tells.
bool has_code_for(std::string_view architectures, Capability gpu);

/// "80-real": the architecture with which a build has machine code for `gpu`.
std::string architecture_of(Capability gpu);

}  // namespace zero::cuda
