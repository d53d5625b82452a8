// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

/// Products of the emulated GPU, in place of the vendor's library.
namespace zero::cuda::naive {

/// What they say their version is on the calling thread, which is a rank.
std::string& version();

}  // namespace zero::cuda::naive
