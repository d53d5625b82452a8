// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/backend_kind.h"

#include <array>
#include <cstddef>

namespace zero {

std::string_view name_of(BackendKind kind) {
  constexpr std::array<std::string_view, kBackendKinds> kNames{
      "local", "host", "store", "mpi", "nccl", "nccl fast", "planning"};
  return kNames.at(static_cast<std::size_t>(kind));
}

}  // namespace zero
