// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace zero {

/// The first host of Slurm's way to write many: "gpu-003" of "gpu-[003-010,12],login". Throws
/// zero::Error where there is none.
std::string first_host(std::string_view node_list);

/// A port for the job's own use, the same on all its hosts: from 20000 to 29999.
int port_of_job(int job);

}  // namespace zero
