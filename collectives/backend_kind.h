// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace zero {

/// The backend of a communicator.
enum class BackendKind : std::uint8_t {
  local,      ///< threads of one process
  host,       ///< processes of one host
  store,      ///< processes that have only a store in common, before NCCL connects their GPUs
  mpi,        ///< processes of an MPI job
  nccl,       ///< GPUs; sums by the tree over ranks
  nccl_fast,  ///< GPUs; NCCL's own sums
  planning,   ///< no peers: a plan
};
inline constexpr std::size_t kBackendKinds = 7;
/// The name for messages: "nccl fast".
std::string_view name_of(BackendKind kind);

}  // namespace zero
