// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/communicator.h"

#include <cstdio>
#include <cstdlib>

#include "collectives/backends.h"
#include "collectives/local/communicator.h"
#include "collectives/mpi/check.h"
#include "collectives/workspace.h"

namespace zero::mpi {
namespace {

// The ranks of `handle` that share this host's memory.
Group host_group(MPI_Comm handle, int rank) {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(handle, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host));
  return Group(host);
}

}  // namespace

MpiCommunicator::MpiCommunicator(std::shared_ptr<Session> session, Group group,
                                 const Options& options)
    : session_(std::move(session)), link_(std::make_shared<Link>(std::move(group), options)) {
  store_ = std::make_unique<MpiStore>(session_, Group::copy_of(link_->handle()));
  const Group host = host_group(link_->handle(), link_->rank());
  local_rank_ = host.rank();
  local_size_ = host.size();
}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(link_->handle(), color < 0 ? MPI_UNDEFINED : color, key, &part));
  if (part == MPI_COMM_NULL) return nullptr;
  return std::make_unique<MpiCommunicator>(session_, Group(part), link_->options());
}

void MpiCommunicator::submit(Stream& stream, Operation operation, const Tag& tag, Work work) {
  const std::string name = fmt::format("{}({})", name_of(operation), tag.unit);
  stream.submit(name, [link = link_, who = fmt::format("[rank {}] {}", rank(), name),
                       work = std::move(work)] { work(*link, who); });
}

void MpiCommunicator::do_all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) {
  submit(stream, Operation::all_gather, tag,
         [mine, full](Link& link, const std::string& who) { link.all_gather(mine, full, who); });
}

void MpiCommunicator::do_reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue,
                                        View workspace, Stream& stream, const Tag& tag) {
  submit(stream, Operation::reduce_scatter, tag,
         [full, epilogue, workspace](Link& link, const std::string& who) {
           link.reduce_scatter(full, epilogue, workspace, who);
         });
}

std::int64_t MpiCommunicator::do_reduce_scatter_workspace(const Slices& full) const {
  return zero::reduce_scatter_workspace(backend(), full);
}

void MpiCommunicator::do_all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) {
  submit(stream, Operation::all_reduce, tag,
         [values, op](Link& link, const std::string& who) { link.all_reduce(values, op, who); });
}

void MpiCommunicator::do_all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                                    const Tag& tag) {
  submit(stream, Operation::all_to_all, tag, [send, receive](Link& link, const std::string& who) {
    link.all_to_all(send, receive, who);
  });
}

void MpiCommunicator::do_broadcast(View values, int root, Stream& stream, const Tag& tag) {
  submit(stream, Operation::broadcast, tag,
         [values, root](Link& link, const std::string& who) { link.broadcast(values, root, who); });
}

void MpiCommunicator::do_barrier(Stream& stream, const Tag& tag) {
  submit(stream, Operation::barrier, tag, [](Link& link, const std::string&) { link.barrier(); });
}

std::unique_ptr<Communicator> world(int* argc, char*** argv, const Options& options) {
  ZERO_CHECK(options.largest_message >= 1 && options.largest_message < (std::int64_t{1} << 30),
             "largest message of {} bytes; expected 1 to {}", options.largest_message,
             (std::int64_t{1} << 30) - 1);
  if (!Session::initialised() && !Session::launched()) return local::single();
  auto session = Session::start(argc, argv);
  return std::make_unique<MpiCommunicator>(session, Group::copy_of(MPI_COMM_WORLD), options);
}

std::unique_ptr<Communicator> world(int* argc, char*** argv) { return world(argc, argv, {}); }

bool available() { return true; }

void abort(int exit_code) noexcept {
  int finalised = 0;
  MPI_Finalized(&finalised);
  std::fflush(nullptr);
  if (Session::initialised() && finalised == 0) MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace zero::mpi
