// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <exception>
#include <thread>

#include "base/checked_math.h"
#include "base/consecutive.h"
#include "collectives/backends.h"
#include "collectives/copy.h"
#include "collectives/local/group.h"
#include "device/cpu/primitives.h"

namespace zero::local {
namespace {

/// The operations of a rank in a round, on its own memory and that of its peers: run at once if
/// the stream's work itself accesses memory, else enqueued on the device.
class PeerOps {
 public:
  explicit PeerOps(Group::Round& round) : round_(round) {}
  virtual ~PeerOps() = default;
  PeerOps(const PeerOps&) = delete;
  PeerOps& operator=(const PeerOps&) = delete;

  int rank() const { return round_.rank(); }
  int size() const { return round_.size(); }
  const Call& of(int rank) const { return round_.of(rank); }
  const Call& own() const { return of(rank()); }

  /// to = from, unless they are the same memory; equal counts and dtypes.
  virtual void copy(View from, View to) = 0;
  virtual void tree_reduce(std::vector<View> inputs, const ReduceEpilogue& epilogue) = 0;
  virtual void combine(std::vector<View> inputs, ReduceOp op, View to) = 0;
  /// Operations of all ranks before the barrier are complete for all ranks behind it.
  virtual void barrier() = 0;

 protected:
  Group::Round& round_;
};

class ImmediateOps final : public PeerOps {
 public:
  using PeerOps::PeerOps;

  void copy(View from, View to) override { zero::copy(from, to); }
  void tree_reduce(std::vector<View> inputs, const ReduceEpilogue& epilogue) override {
    cpu::tree_reduce(inputs, epilogue);
  }
  void combine(std::vector<View> inputs, ReduceOp op, View to) override {
    cpu::combine(inputs, op, to);
  }
  void barrier() override { round_.barrier(); }
};

/// Enqueues on a device's queue. Peers wait for each rank's events: one recorded on arrival,
/// another at each barrier.
class EnqueuedOps final : public PeerOps {
 public:
  EnqueuedOps(Group::Round& round, Stream& stream) : PeerOps(round), stream_(stream) {
    wait_for_peers();
  }

  void copy(View from, View to) override {
    if (to.empty() || from.data() == to.data()) return;
    kernels_of(to).convert(stream_, from, to);
  }
  void tree_reduce(std::vector<View> inputs, const ReduceEpilogue& epilogue) override {
    if (epilogue.destination.empty()) return;
    kernels_of(epilogue.destination).tree_reduce(stream_, std::move(inputs), epilogue);
  }
  void combine(std::vector<View> inputs, ReduceOp op, View to) override {
    if (!to.empty()) kernels_of(to).combine(stream_, std::move(inputs), op, to);
  }
  void barrier() override {
    own().events->at(++reached_) = stream_.record();
    round_.barrier();
    wait_for_peers();
  }

 private:
  void wait_for_peers() {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) stream_.wait(of(peer).events->at(reached_));
    }
  }

  Kernels& kernels_of(const View& view) const {
    ZERO_CHECK(view.device() != nullptr,
               "[rank {}] {}: a view is of host memory, expected memory of the device whose stream "
               "it is; for values of the host there is host_all_reduce",
               rank(), own().name);
    return view.device()->kernels();
  }

  Stream& stream_;
  std::size_t reached_ = 0;
};

using Body = std::function<void(PeerOps&)>;

/// Submits this rank's part in the round of `call` to `stream`. On a stream that enqueues, the
/// ranks' host threads meet in this function, and their queues wait for each other's events.
void submit_round(Stream& stream, std::shared_ptr<Group> group, int rank, Call call, Body body) {
  if (stream.enqueues()) {
    call.events = std::make_shared<Call::Events>();
    call.events->front() = stream.record();
    return group->run_round(rank, std::move(call), [&](Group::Round& round) {
      EnqueuedOps ops(round, stream);
      body(ops);
      ops.barrier();  // peers may read this rank's memory until they are done
    });
  }
  const std::string name = call.name;
  stream.submit(name,
                [group = std::move(group), rank, call = std::move(call), body = std::move(body)] {
                  group->run_round(rank, call, [&](Group::Round& round) {
                    ImmediateOps ops(round);
                    body(ops);
                  });
                });
}

Call call_of(Operation operation, const Tag& tag, std::string details) {
  Call call;
  call.name = call_name(operation, tag.purpose);
  call.details = std::move(details);
  return call;
}

std::vector<std::int64_t> counts_of(const Slices& slices) {
  std::vector<std::int64_t> counts;
  for (const Slices::Range& range : slices.ranges) counts.push_back(range.count);
  return counts;
}

// Each rank combines one share in place, then copies the others' from their owners. No other rank
// reads a rank's own share before the barrier, so no further memory is needed.
void all_reduce_shares(View values, ReduceOp op, PeerOps& ops) {
  const int world = ops.size();
  if (world == 1) return;
  std::vector<View> inputs;
  for (int peer = 0; peer < world; ++peer) {
    inputs.push_back(share(ops.of(peer).values, ops.rank(), world));
  }
  ops.combine(inputs, op, share(values, ops.rank(), world));
  ops.barrier();
  for (int peer = 0; peer < world; ++peer) {
    ops.copy(share(ops.of(peer).values, peer, world), share(values, peer, world));
  }
}

// Whether all ranks gather to the same memory. The same result, or an error, on every rank.
bool have_one_target(const PeerOps& ops) {
  const auto start_of = [&](int rank) { return ops.of(rank).slices.buffer.data(); };
  int same = 0;
  for (int a = 0; a < ops.size(); ++a) {
    for (int b = 0; b < a; ++b)
      same += start_of(a) == start_of(b) && start_of(a) != nullptr ? 1 : 0;
  }
  const int pairs = ops.size() * (ops.size() - 1) / 2;
  ZERO_CHECK(same == 0 || same == pairs, "[rank {}] {}: {}", ops.rank(), ops.own().name,
             kTargetsApart);
  return same > 0;
}

/// One rank of a group of threads. Each collective is work on its stream, in which the ranks meet
/// and read each other's memory directly. On a stream that enqueues, the ranks' host threads meet
/// inside the call, which therefore returns once all have come; copies and sums run on the device,
/// behind the events of all ranks' streams.
class LocalBackend final : public CollectiveBackend {
 public:
  /// Rank `rank` of the group; a split passes the context of the group it came from.
  LocalBackend(std::shared_ptr<Group> group, int rank,
               std::shared_ptr<CallContext> context = std::make_shared<CallContext>())
      : CollectiveBackend(std::move(context)), group_(std::move(group)), rank_(rank) {
    group_->set_context(rank_, this->context());
  }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  int local_rank() const override { return rank_; }
  int local_size() const override { return group_->size(); }
  BackendKind kind() const override { return BackendKind::local; }
  std::string_view description() const override { return "threads of one process"; }
  Store& store() override { return group_->store(); }

  std::shared_ptr<CollectiveBackend> split(int color, int key) override {
    std::vector<int> members;
    auto group = group_->split(rank_, color, key, members);
    if (!group) return nullptr;
    const auto rank = std::ranges::find(members, rank_) - members.begin();
    auto part = std::make_shared<LocalBackend>(std::move(group), static_cast<int>(rank), context());
    part->set_members(std::move(members));
    return part;
  }

  /// Shared if the device's memory is this process's: the ranks are threads.
  SharedBuffer allocate_shared(Device& device, std::int64_t count, DType dtype,
                               MemoryClass memory_class, std::string_view label) override {
    const std::int64_t bytes = checked_mul(std::max<std::int64_t>(count, 0), size_of(dtype));
    const bool of_process = device.has_memory() && device.memory() == MemorySpace::host;
    if (size() == 1 || bytes == 0 || !of_process) {
      return CollectiveBackend::allocate_shared(device, count, dtype, memory_class, label);
    }
    const auto memory = group_->allocate_shared(rank_, bytes, label);
    return {{{memory.get(), count, dtype, &device},
             memory_class,
             std::string(label),
             device.ledger(),
             [user = memory](void*) { static_cast<void>(user); }},
            true};
  }

  void all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override {
    Call call = call_of(Operation::all_gather, tag, std::string(name_of(mine.dtype())));
    call.counts = counts_of(full);
    call.values = mine;
    call.slices = full;
    submit(stream, std::move(call), [full](PeerOps& ops) {
      if (have_one_target(ops)) {
        return ops.copy(ops.own().values, full.of(ops.rank()));
      }
      for (int peer = 0; peer < ops.size(); ++peer) {
        ops.copy(ops.of(peer).values, full.of(peer));
      }
    });
  }

  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View /*workspace*/,
                      Stream& stream, const Tag& tag) override {
    Call call = call_of(Operation::reduce_scatter, tag, std::string(name_of(full.buffer.dtype())));
    call.counts = counts_of(full);
    call.slices = full;
    submit(stream, std::move(call), [epilogue](PeerOps& ops) {
      std::vector<View> inputs;
      for (int peer = 0; peer < ops.size(); ++peer) {
        inputs.push_back(ops.of(peer).slices.of(ops.rank()));
      }
      ops.tree_reduce(std::move(inputs), epilogue);
    });
  }

  void all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) override {
    Call call = call_of(Operation::all_reduce, tag,
                        fmt::format("{}, {}", name_of(values.dtype()), name_of(op)));
    call.counts = {values.count()};
    call.values = values;
    submit(stream, std::move(call),
           [values, op](PeerOps& ops) { all_reduce_shares(values, op, ops); });
  }

  void all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                  const Tag& tag) override {
    Call call = call_of(Operation::all_to_all, tag, std::string(name_of(send.buffer.dtype())));
    call.pairwise = true;
    call.counts = counts_of(send);
    call.receive_counts = counts_of(receive);
    call.slices = send;
    submit(stream, std::move(call), [receive](PeerOps& ops) {
      for (int peer = 0; peer < ops.size(); ++peer) {
        ops.copy(ops.of(peer).slices.of(ops.rank()), receive.of(peer));
      }
    });
  }

  void broadcast(View values, int root, Stream& stream, const Tag& tag) override {
    Call call = call_of(Operation::broadcast, tag,
                        fmt::format("{}, root {}", name_of(values.dtype()), root));
    call.counts = {values.count()};
    call.values = values;
    submit(stream, std::move(call),
           [values, root](PeerOps& ops) { ops.copy(ops.of(root).values, values); });
  }

  void barrier(Stream& stream, const Tag& tag) override {
    submit(stream, call_of(Operation::barrier, tag, {}), [](PeerOps&) {});
  }

 private:
  void submit(Stream& stream, Call call, Body body) {
    call.step = context()->step();
    submit_round(stream, group_, rank_, std::move(call), std::move(body));
  }

  std::shared_ptr<Group> group_;
  int rank_;
};

// The threads of one run and the first error among them.
class Ranks {
 public:
  Ranks(int ranks, const std::function<void(Communicator&)>& body) : body_(body) {
    job_ = std::make_shared<Job>(ranks);
    group_ = Group::make(job_, consecutive(0, ranks));
  }

  void run_all() {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < group_->size(); ++rank) {
      try {
        threads.emplace_back([this, rank] { run_rank(rank); });
      } catch (const std::exception& error) {
        failed(rank, fmt::format("its thread did not start: {}", error.what()));
      }
    }
    threads.clear();  // joins
    if (first_) std::rethrow_exception(first_);
  }

 private:
  void run_rank(int rank) {
    try {
      Communicator communicator(std::make_shared<LocalBackend>(group_, rank));
      body_(communicator);
      job_->leave(rank, "its body returned");
    } catch (const std::exception& error) {
      failed(rank, fmt::format("it threw \"{}\"", error.what()));
    } catch (...) {
      failed(rank, "it threw");
    }
  }

  void failed(int rank, const std::string& how) {
    {
      const std::scoped_lock lock(mutex_);
      if (!first_) first_ = std::current_exception();
    }
    job_->leave(rank, how);
    job_->close_stores(fmt::format("rank {} left: {}", rank, how));
  }

  const std::function<void(Communicator&)>& body_;
  std::shared_ptr<Job> job_;
  std::shared_ptr<Group> group_;
  std::mutex mutex_;
  std::exception_ptr first_;
};

}  // namespace

std::unique_ptr<Communicator> single() {
  return std::make_unique<Communicator>(
      std::make_shared<LocalBackend>(Group::make(std::make_shared<Job>(1), {0}), 0));
}

void run(int ranks, const std::function<void(Communicator&)>& body) {
  ZERO_CHECK(ranks >= 1, "local::run with {} ranks; expected at least 1", ranks);
  Ranks(ranks, body).run_all();
}

}  // namespace zero::local
