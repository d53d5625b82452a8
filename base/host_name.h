// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace zero {

/// This host's name, as the system reports it.
std::string host_name();

}  // namespace zero
