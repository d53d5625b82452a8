// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <optional>
#include <source_location>
#include <string>

namespace zero::mpi {

/// Throws zero::Error with MPI's message and the call site unless `code` is MPI_SUCCESS.
void check_mpi(int code, std::source_location where = std::source_location::current());

/// The bytes of a message from `source`, a rank of `group` or MPI_ANY_SOURCE, if one has arrived.
std::optional<std::string> take_message(MPI_Comm group, int source, int tag);

/// Throws zero::Error unless the thread level that MPI provides is MPI_THREAD_MULTIPLE.
void check_thread_level(int provided);

}  // namespace zero::mpi
