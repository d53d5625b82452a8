// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

#include "collectives/agreement.h"
#include "launch/process/exit_status.h"

namespace zero {

/// An error with which the same start fails again: of the command line, of the launcher's variables
/// or of the configuration. Thrown by all ranks alike, or before they meet.
class ConfigurationError : public AgreedError {
 public:
  explicit ConfigurationError(const std::string& message) : AgreedError(message) {}
};

/// Calls `work()`, which needs no other rank and reads nothing that comes and goes. Each
/// zero::Error of it becomes a ConfigurationError, which agree() passes on if all ranks fail alike:
/// an error of one host alone may come and go.
template <typename Work>
auto checking_configuration(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw ConfigurationError(error.what());
  }
}

/// The status with which a program ends for `error`.
inline int exit_status_of(const std::exception& error) {
  return dynamic_cast<const ConfigurationError*>(&error) != nullptr ? exit_status::kConfiguration
                                                                    : exit_status::kFault;
}

}  // namespace zero
