// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/configuration_error.h"

#include "launch/process/exit_status.h"

namespace zero {

int exit_status_of(const std::exception& error) {
  return dynamic_cast<const ConfigurationError*>(&error) != nullptr ? exit_status::kConfiguration
                                                                    : exit_status::kFault;
}

}  // namespace zero
