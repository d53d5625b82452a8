// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/communicator.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "base/checked_math.h"
#include "collectives/backends.h"
#include "collectives/local/communicator.h"
#include "collectives/mpi/check.h"
#include "collectives/workspace.h"

namespace zero::mpi {
namespace {

/// Allocations from this size on are shared with the host's ranks; smaller values travel with the
/// call.
constexpr std::int64_t kShared = host::Board::kPosted + 1;

// The ranks of `handle` that share this host's memory.
Group host_group(MPI_Comm handle, int rank) {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(handle, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host));
  return Group(host);
}

// Every rank's line of text, in rank order.
std::vector<std::string> exchange(MPI_Comm handle, int ranks, const std::string& mine) {
  const auto world = static_cast<std::size_t>(ranks);
  const int length = narrow<int>(mine.size());
  std::vector<int> lengths(world);
  check_mpi(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, handle));
  std::vector<int> begins(world);
  std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), 0);
  std::string all(static_cast<std::size_t>(begins.back() + lengths.back()), ' ');
  check_mpi(MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), begins.data(),
                           MPI_CHAR, handle));
  std::vector<std::string> lines;
  for (std::size_t rank = 0; rank < world; ++rank) {
    lines.push_back(all.substr(static_cast<std::size_t>(begins[rank]),
                               static_cast<std::size_t>(lengths[rank])));
  }
  return lines;
}

// MPI moves only while it is called: a rank that waits in shared memory may hold what another one
// still has to get rid of inside a call of MPI.
void progress(MPI_Comm handle) {
  int found = 0;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, handle, &found, MPI_STATUS_IGNORE));
}

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
                                 const Options& options)
    : session_(std::move(session)), ways_(new Ways{Link(std::move(group), options), nullptr}) {
  store_ = std::make_unique<MpiStore>(session_, Group::copy_of(ways_->link.handle()));
  const Group host = host_group(ways_->link.handle(), ways_->link.rank());
  local_rank_ = host.rank();
  local_size_ = host.size();
  if (local_size_ < size()) ways_->link.cut_messages(Link::kBetweenHosts);
  share_memory(options);
}

void MpiCommunicator::share_memory(const Options& options) {
  std::string refusal = "they were asked for";
  if (options.transport == Options::Transport::best) {
    refusal = "the ranks are on several hosts";
    int alone = local_size_ == size() ? 1 : 0;
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &alone, 1, MPI_INT, MPI_MIN, ways_->link.handle()));
    if (alone != 0) {
      std::string reason;
      memory_ = session_->memory(size(), reason);
      auto joined = host::Group::join(
          memory_, reason, {rank(), size()},
          [this](const std::string& mine) { return exchange(ways_->link.handle(), size(), mine); });
      ways_->host = std::move(joined.group);
      if (ways_->host) ways_->host->set_idle([handle = ways_->link.handle()] { progress(handle); });
      refusal = joined.refusal;
    }
  }
  transport_ = ways_->host ? "shared memory inside the host" : "MPI messages: " + refusal;
  if (!ways_->host) memory_ = nullptr;
}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(ways_->link.handle(), color < 0 ? MPI_UNDEFINED : color, key, &part));
  if (part == MPI_COMM_NULL) return nullptr;
  return std::make_unique<MpiCommunicator>(session_, Group(part), ways_->link.options());
}

Buffer MpiCommunicator::allocate(Device& device, std::int64_t count, DType dtype,
                                 MemoryClass memory_class, std::string_view label) {
  const std::int64_t bytes = checked_mul(std::max<std::int64_t>(count, 0), size_of(dtype));
  if (memory_ && bytes >= kShared && device.name() == "cpu") {
    if (void* const data = memory_->region().allocate(bytes)) {
      const auto free = [memory = memory_, bytes](void* place) {
        memory->region().free(place, bytes);
      };
      return {
          {data, count, dtype, &device}, memory_class, std::string(label), device.ledger(), free};
    }
  }
  return device.allocate(count, dtype, memory_class, label);
}

CommonBuffer MpiCommunicator::allocate_common(Device& device, std::int64_t count, DType dtype,
                                              MemoryClass memory_class, std::string_view label) {
  const std::int64_t bytes = checked_mul(std::max<std::int64_t>(count, 0), size_of(dtype));
  if (ways_->host && size() > 1 && bytes > 0) {
    const auto span = ways_->host->allocate_common(
        bytes, device.name() == "cpu" ? "" : "a rank's device is not the CPU",
        [this](const std::string& mine) { return exchange(ways_->link.handle(), size(), mine); });
    if (span) {
      return {{{span->data(), count, dtype, &device},
               memory_class,
               std::string(label),
               device.ledger(),
               [user = span](void*) { static_cast<void>(user); }},
              true};
    }
  }
  return {allocate(device, count, dtype, memory_class, label), false};
}

template <typename Work>
void MpiCommunicator::submit(Stream& stream, Operation operation, const Tag& tag, Work work) {
  const Name name(operation, tag.unit);
  stream.submit(name.view(),
                [ways = ways_, unit = tag.unit, work = std::move(work)] { work(*ways, unit); });
}

void MpiCommunicator::do_all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) {
  submit(stream, Operation::all_gather, tag, [mine, full](Ways& ways, const std::string& unit) {
    if (ways.host) return ways.host->all_gather(mine, full, unit);
    ways.link.all_gather(mine, full, unit);
  });
}

void MpiCommunicator::do_reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue,
                                        View workspace, Stream& stream, const Tag& tag) {
  submit(stream, Operation::reduce_scatter, tag,
         [full, epilogue, workspace](Ways& ways, const std::string& unit) {
           if (ways.host) return ways.host->reduce_scatter(full, epilogue, unit);
           ways.link.reduce_scatter(full, epilogue, workspace, unit);
         });
}

std::int64_t MpiCommunicator::do_reduce_scatter_workspace(const Slices& full) const {
  return zero::reduce_scatter_workspace(backend(), full);
}

void MpiCommunicator::do_all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) {
  submit(stream, Operation::all_reduce, tag, [values, op](Ways& ways, const std::string& unit) {
    if (ways.host) return ways.host->all_reduce(values, op, unit);
    ways.link.all_reduce(values, op, unit);
  });
}

void MpiCommunicator::do_all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                                    const Tag& tag) {
  submit(stream, Operation::all_to_all, tag, [send, receive](Ways& ways, const std::string& unit) {
    if (ways.host) return ways.host->all_to_all(send, receive, unit);
    ways.link.all_to_all(send, receive, unit);
  });
}

void MpiCommunicator::do_broadcast(View values, int root, Stream& stream, const Tag& tag) {
  submit(stream, Operation::broadcast, tag, [values, root](Ways& ways, const std::string& unit) {
    if (ways.host) return ways.host->broadcast(values, root, unit);
    ways.link.broadcast(values, root, unit);
  });
}

void MpiCommunicator::do_barrier(Stream& stream, const Tag& tag) {
  submit(stream, Operation::barrier, tag, [](Ways& ways, const std::string& unit) {
    if (ways.host) return ways.host->barrier(unit);
    ways.link.barrier();
  });
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
