// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/communicator.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "collectives/backends.h"
#include "collectives/host/buffers.h"
#include "collectives/local/communicator.h"
#include "collectives/mpi/check.h"
#include "collectives/workspace.h"

namespace zero::mpi {
namespace {

/// "all_gather(h.0)", cut where it is long, without a place on the heap.
class Name {
 public:
  Name(Operation operation, std::string_view unit) {
    add(name_of(operation));
    add("(");
    add(unit.substr(0, std::min(unit.size(), text_.size() - length_ - 1)));
    add(")");
  }
  std::string_view view() const { return {text_.data(), length_}; }

 private:
  void add(std::string_view part) { length_ += part.copy(text_.data() + length_, part.size()); }

  std::array<char, 96> text_;
  std::size_t length_ = 0;
};

}  // namespace

MpiCommunicator::MpiCommunicator(std::shared_ptr<Session> session, Group group,
                                 const Options& options, std::shared_ptr<CallContext> context)
    : Communicator(std::move(context)),
      session_(std::move(session)),
      ways_(std::make_shared<Ways>(*session_, std::move(group), options, this->context())),
      store_(std::make_unique<MpiStore>(session_, Group::copy_of(ways_->link.handle()))) {}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  ways_->meet("split");
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(ways_->link.handle(), color < 0 ? MPI_UNDEFINED : color, key, &part));
  if (part == MPI_COMM_NULL) return nullptr;
  Group group(part);
  Options options = ways_->link.options();
  if (!options.hosts.empty()) {
    const int mine = options.hosts[static_cast<std::size_t>(rank())];
    options.hosts.resize(static_cast<std::size_t>(group.size()));
    check_mpi(MPI_Allgather(&mine, 1, MPI_INT, options.hosts.data(), 1, MPI_INT, part));
  }
  return std::make_unique<MpiCommunicator>(session_, std::move(group), options, context());
}

Buffer MpiCommunicator::allocate(Device& device, std::int64_t count, DType dtype,
                                 MemoryClass memory_class, std::string_view label) {
  return host::shared_buffer(ways_->memory, {device, count, dtype, memory_class, label});
}

CommonBuffer MpiCommunicator::allocate_common(Device& device, std::int64_t count, DType dtype,
                                              MemoryClass memory_class, std::string_view label) {
  if (ways_->host && size() > 1) {
    ways_->meet("allocate_common");
    auto made = host::common_buffer(
        *ways_->host, [this](const std::string& mine) { return ways_->exchange(mine); },
        {device, count, dtype, memory_class, label});
    if (made) return {std::move(*made), true};
  }
  return {allocate(device, count, dtype, memory_class, label), false};
}

template <typename Work>
void MpiCommunicator::submit(Stream& stream, Operation operation, const Tag& tag, Work work) {
  const Name name(operation, tag.unit);
  stream.submit(name.view(),
                [ways = ways_, unit = tag.unit, step = context()->step(), work = std::move(work)] {
                  ways->set_step(step);
                  work(*ways, unit);
                });
}

void MpiCommunicator::do_all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) {
  submit(stream, Operation::all_gather, tag, [mine, full](Ways& ways, const std::string& unit) {
    if (ways.host) return ways.host->all_gather(mine, full, unit);
    if (ways.hosts) return ways.hosts->all_gather(mine, full, unit);
    ways.messages->all_gather(mine, full, unit);
  });
}

void MpiCommunicator::do_reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue,
                                        View workspace, Stream& stream, const Tag& tag) {
  submit(stream, Operation::reduce_scatter, tag,
         [full, epilogue, workspace](Ways& ways, const std::string& unit) {
           if (ways.host) return ways.host->reduce_scatter(full, epilogue, unit);
           if (ways.hosts) return ways.hosts->reduce_scatter(full, epilogue, unit);
           ways.messages->reduce_scatter(full, epilogue, workspace, unit);
         });
}

std::int64_t MpiCommunicator::do_reduce_scatter_workspace(const Slices& full) const {
  return zero::reduce_scatter_workspace(backend(), full);
}

void MpiCommunicator::do_all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) {
  submit(stream, Operation::all_reduce, tag, [values, op](Ways& ways, const std::string& unit) {
    if (ways.host) return ways.host->all_reduce(values, op, unit);
    if (ways.hosts) return ways.hosts->all_reduce(values, op, unit);
    ways.messages->all_reduce(values, op, unit);
  });
}

void MpiCommunicator::do_all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                                    const Tag& tag) {
  submit(stream, Operation::all_to_all, tag, [send, receive](Ways& ways, const std::string& unit) {
    if (ways.host) return ways.host->all_to_all(send, receive, unit);
    if (ways.hosts) return ways.hosts->all_to_all(send, receive, unit);
    ways.messages->all_to_all(send, receive, unit);
  });
}

void MpiCommunicator::do_broadcast(View values, int root, Stream& stream, const Tag& tag) {
  submit(stream, Operation::broadcast, tag, [values, root](Ways& ways, const std::string& unit) {
    if (ways.host) return ways.host->broadcast(values, root, unit);
    if (ways.hosts) return ways.hosts->broadcast(values, root, unit);
    ways.messages->broadcast(values, root, unit);
  });
}

void MpiCommunicator::do_barrier(Stream& stream, const Tag& tag) {
  submit(stream, Operation::barrier, tag, [](Ways& ways, const std::string& unit) {
    if (ways.host) return ways.host->barrier(unit);
    if (ways.hosts) return ways.hosts->barrier(unit);
    ways.messages->barrier(unit);
  });
}

std::unique_ptr<Communicator> world(int* argc, char*** argv, const Options& options) {
  ZERO_CHECK(options.largest_message >= 1 && options.largest_message < (std::int64_t{1} << 30),
             "largest message of {} bytes; expected 1 to {}", options.largest_message,
             (std::int64_t{1} << 30) - 1);
  if (!Session::initialised() && !Session::launched()) return local::single();
  auto session = Session::start(argc, argv);
  Group group = Group::copy_of(MPI_COMM_WORLD);
  ZERO_CHECK(options.hosts.empty() || static_cast<int>(options.hosts.size()) == group.size(),
             "imitated hosts of {} ranks; expected one for each of the {} ranks of the world",
             options.hosts.size(), group.size());
  return std::make_unique<MpiCommunicator>(session, std::move(group), options);
}

std::unique_ptr<Communicator> world(int* argc, char*** argv) { return world(argc, argv, {}); }

bool available() { return true; }

std::string version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);  // needs no initialisation
  const std::string_view whole(text.data(), static_cast<std::size_t>(length));
  return std::string(whole.substr(0, whole.find_first_of(",\n")));
}

void abort(int exit_code) noexcept {
  int finalised = 0;
  MPI_Finalized(&finalised);
  std::fflush(nullptr);
  if (Session::initialised() && finalised == 0) MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace zero::mpi
