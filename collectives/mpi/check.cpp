// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/check.h"

#include <array>
#include <string_view>

#include "base/error.h"

namespace zero::mpi {

void check_mpi(int code, std::source_location where) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail("MPI error {} ({}) at {}:{}", code,
       std::string_view(text.data(), static_cast<std::size_t>(length)), where.file_name(),
       where.line());
}

std::optional<std::string> take_message(MPI_Comm group, int source, int tag) {
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status{};
  check_mpi(MPI_Improbe(source, tag, group, &found, &message, &status));
  if (found == 0) return std::nullopt;
  int count = 0;
  check_mpi(MPI_Get_count(&status, MPI_CHAR, &count));
  std::string bytes(static_cast<std::size_t>(count), '\0');
  check_mpi(MPI_Mrecv(bytes.data(), count, MPI_CHAR, &message, MPI_STATUS_IGNORE));
  return bytes;
}

void check_thread_level(int provided) {
  ZERO_CHECK(provided >= MPI_THREAD_MULTIPLE,
             "this MPI gives thread level {}, expected MPI_THREAD_MULTIPLE ({}), because "
             "collectives run beside the computation; use an MPI built with thread support, and "
             "MPI_Init_thread where you initialise it yourself",
             provided, MPI_THREAD_MULTIPLE);
}

}  // namespace zero::mpi
