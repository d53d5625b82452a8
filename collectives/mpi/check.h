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

/// The bytes of a message from `source`, a rank of `group` or MPI_ANY_SOURCE, if one has arrived;
/// `from`: the rank that sent it.
std::optional<std::string> take_message(MPI_Comm group, int source, int tag, int* from = nullptr);

/// Sends `text` without waiting: for a job that is about to end. MPI may read it for long, of a
/// rank that does not come, so its memory is never freed.
void send_and_forget(MPI_Comm group, int to, int tag, const std::string& text);
/// The same to all other ranks of `group`.
void tell_peers(MPI_Comm group, int tag, const std::string& text);

/// Throws zero::Error unless the thread level that MPI provides is MPI_THREAD_MULTIPLE.
void check_thread_level(int provided);

}  // namespace zero::mpi
