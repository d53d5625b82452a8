// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/comm.h"

#include <array>
#include <exception>
#include <string_view>
#include <utility>

#include "base/checked_math.h"
#include "base/consecutive.h"
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

std::optional<std::string> take_message(MPI_Comm group, int source, int tag, int* from) {
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status{};
  check_mpi(MPI_Improbe(source, tag, group, &found, &message, &status));
  if (found == 0) return std::nullopt;
  if (from != nullptr) *from = status.MPI_SOURCE;
  int count = 0;
  check_mpi(MPI_Get_count(&status, MPI_CHAR, &count));
  std::string bytes(static_cast<std::size_t>(count), '\0');
  check_mpi(MPI_Mrecv(bytes.data(), count, MPI_CHAR, &message, MPI_STATUS_IGNORE));
  return bytes;
}

void send_and_forget(MPI_Comm group, int to, int tag, const std::string& text) {
  const auto* const kept = new std::string(text);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(kept->data(), narrow<int>(kept->size()), MPI_CHAR, to, tag, group, &request));
  check_mpi(MPI_Request_free(&request));
}

void tell_peers(MPI_Comm group, int tag, const std::string& text) {
  int rank = 0;
  int size = 1;
  check_mpi(MPI_Comm_rank(group, &rank));
  check_mpi(MPI_Comm_size(group, &size));
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) send_and_forget(group, peer, tag, text);
  }
}

std::vector<int> ranks_in(MPI_Comm whole, MPI_Comm part) {
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group some = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(whole, &all));
  check_mpi(MPI_Comm_group(part, &some));
  int size = 0;
  check_mpi(MPI_Group_size(some, &size));
  const std::vector<int> ranks = consecutive(0, size);
  std::vector<int> found = ranks;
  check_mpi(MPI_Group_translate_ranks(some, size, ranks.data(), all, found.data()));
  check_mpi(MPI_Group_free(&some));
  check_mpi(MPI_Group_free(&all));
  return found;
}

void check_thread_level(int provided) {
  ZERO_CHECK(provided >= MPI_THREAD_MULTIPLE,
             "this MPI gives thread level {}, expected MPI_THREAD_MULTIPLE ({}), because "
             "collectives run beside the computation; use an MPI built with thread support, and "
             "MPI_Init_thread where you initialise it yourself",
             provided, MPI_THREAD_MULTIPLE);
}

bool finalised() {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}

Comm::Comm(MPI_Comm handle) : handle_(handle) {
  check_mpi(MPI_Comm_set_errhandler(handle, MPI_ERRORS_RETURN));
  check_mpi(MPI_Comm_rank(handle, &rank_));
  check_mpi(MPI_Comm_size(handle, &size_));
}

Comm Comm::copy_of(MPI_Comm handle) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(handle, &copy));
  return Comm(copy);
}

Comm::Comm(Comm&& other) noexcept
    : handle_(std::exchange(other.handle_, MPI_COMM_NULL)),
      abandoned_(other.abandoned_),
      rank_(other.rank_),
      size_(other.size_) {}

Comm::~Comm() {
  // While unwinding: the peers do not free the communicator, so neither may this rank.
  if (handle_ == MPI_COMM_NULL || abandoned_) return;
  if (std::uncaught_exceptions() == 0 && !finalised()) {
    MPI_Comm_free(&handle_);
  }
}

}  // namespace zero::mpi
