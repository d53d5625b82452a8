// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "base/consecutive.h"
#include "collectives/backends.h"
#include "collectives/nccl/plan.h"
#include "collectives/stores.h"
#include "device/planning/clocked_stream.h"

namespace zero::planning {
namespace {

// A rank without peers: calls are checked, nothing is submitted but, with a clock, time.
class PlanningBackend final : public CollectiveBackend {
 public:
  /// What a backend and its parts have in common.
  struct Common {
    BackendKind backend;  // of the run
    Device* device;
    CollectiveTimes* times;
  };

  /// `ranks`: of the world; empty if collectives take no time.
  PlanningBackend(int rank, int size, const Common& common, std::vector<int> ranks,
                  std::shared_ptr<CallContext> context)
      : CollectiveBackend(std::move(context)),
        rank_(rank),
        size_(size),
        backend_(common.backend),
        device_(common.device),
        times_(common.times),
        ranks_(std::move(ranks)) {
    ZERO_CHECK(size >= 1 && rank >= 0 && rank < size,
               "planning: rank {} is outside a world of {} ranks", rank, size);
    if (device_ != nullptr && of_nccl()) scratch_ = nccl::take_scratch(*device_, size);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return rank_; }
  int local_size() const override { return size_; }
  BackendKind kind() const override { return BackendKind::planning; }
  BackendKind run_kind() const override { return backend_; }
  std::string_view description() const override { return "nothing moves"; }

  // The other ranks' colors are unknown, so only trivial splits are possible.
  std::shared_ptr<CollectiveBackend> split(int color, int key) override {
    static_cast<void>(key);
    if (color < 0) return nullptr;
    ZERO_CHECK(size_ == 1,
               "[rank {}] split: a planning communicator of {} ranks does not know the colors of "
               "its peers; make one of the group's size with planning::part",
               rank_, size_);
    return part(rank_, size_, {});
  }
  Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label) override {
    if (&device == device_ && of_nccl() && nccl::gives_memory(size_, count, dtype)) {
      return device.adopt(nullptr, count, dtype, memory_class, label);
    }
    return device.allocate(count, dtype, memory_class, label);
  }
  SharedBuffer allocate_shared(Device& device, std::int64_t count, DType dtype,
                               MemoryClass memory_class, std::string_view label) override {
    Buffer buffer = allocate(device, count, dtype, memory_class, label);
    if (times_ != nullptr && count > 0) shared_[address(buffer.view())] = buffer.view().bytes();
    return {std::move(buffer), false};
  }
  Store& store() override { return store_; }
  /// A rank of a sub-group.
  std::shared_ptr<CollectiveBackend> part(int rank, int size, const PartRanks& ranks) const {
    std::vector<int> members;
    if (times_ != nullptr) {
      for (const int member : ranks ? ranks() : consecutive(0, size)) {
        members.push_back(ranks_.at(static_cast<std::size_t>(member)));
      }
    }
    return std::make_shared<PlanningBackend>(rank, size, Common{backend_, device_, times_},
                                             std::move(members), context());
  }

  void all_gather(View mine, const Slices& full, Stream& stream, const Tag&) override {
    const bool in_place = mine.data() == full.of(rank_).data();
    take(stream, {.operation = Operation::all_gather,
                  .dtype = mine.dtype(),
                  .total_bytes = full.total() * size_of(mine.dtype()),
                  .own_bytes = in_place ? 0 : mine.bytes(),
                  .to_shared_memory = shares(full.buffer),
                  .ranks = ranks_,
                  .rank = rank_});
  }
  void reduce_scatter(const Slices& full, const ReduceEpilogue&, View, Stream& stream,
                      const Tag&) override {
    take_sum(Operation::reduce_scatter, full, stream);
  }
  void all_reduce(View values, ReduceOp, Stream& stream, const Tag&) override {
    take_whole(Operation::all_reduce, values, stream);
  }
  void all_to_all(const Slices& send, const Slices&, Stream& stream, const Tag&) override {
    take_sum(Operation::all_to_all, send, stream);
  }
  void broadcast(View values, int, Stream& stream, const Tag&) override {
    take_whole(Operation::broadcast, values, stream);
  }
  void barrier(Stream& stream, const Tag&) override {
    take_whole(Operation::barrier, View(), stream);
  }

 private:
  static std::uintptr_t address(const View& view) {
    return reinterpret_cast<std::uintptr_t>(view.data());
  }
  bool of_nccl() const {
    return backend_ == BackendKind::nccl || backend_ == BackendKind::nccl_fast;
  }
  /// Whether `values` lie in memory of allocate_shared(). Addresses are never used twice.
  bool shares(const View& values) const {
    const auto behind = shared_.upper_bound(address(values));
    if (behind == shared_.begin()) return false;
    const auto& [begin, bytes] = *std::prev(behind);
    return address(values) - begin < static_cast<std::uintptr_t>(bytes);
  }
  void take_sum(Operation operation, const Slices& full, Stream& stream) {
    const DType dtype = full.buffer.dtype();
    take(stream, {.operation = operation,
                  .dtype = dtype,
                  .total_bytes = full.total() * size_of(dtype),
                  .own_bytes = full.of(rank_).bytes(),
                  .ranks = ranks_,
                  .rank = rank_});
  }
  void take_whole(Operation operation, const View& values, Stream& stream) {
    take(stream, {.operation = operation,
                  .dtype = values.dtype(),
                  .total_bytes = values.bytes(),
                  .own_bytes = values.bytes() / size_,
                  .ranks = ranks_,
                  .rank = rank_});
  }
  void take(Stream& stream, const PlannedCollective& collective) {
    if (times_ == nullptr || size_ == 1) return;
    auto* const clocked = dynamic_cast<ClockedStream*>(&stream);
    ZERO_CHECK(clocked != nullptr,
               "[rank {}] {}: its time is asked for on a stream without a virtual clock; open the "
               "planning device with one",
               rank_, name_of(collective.operation));
    clocked->run([&](double begin) { return times_->span(collective, begin); });
  }

  int rank_;
  int size_;
  BackendKind backend_;  // of the run
  Device* device_;
  CollectiveTimes* times_;  // null: collectives take no time
  std::vector<int> ranks_;
  std::map<std::uintptr_t, std::int64_t> shared_;  // with a clock: bytes at each address
  Buffer scratch_;
  InProcessStore store_;
};

}  // namespace

std::unique_ptr<Communicator> communicator(int rank, int size, BackendKind backend, Device* device,
                                           CollectiveTimes* times) {
  static_cast<void>(zero::reduce_scatter_workspace(backend, {}));  // refuses a kind that has none
  return std::make_unique<Communicator>(std::make_shared<PlanningBackend>(
      rank, size, PlanningBackend::Common{backend, device, times},
      times == nullptr ? std::vector<int>() : consecutive(0, size),
      std::make_shared<CallContext>()));
}

std::unique_ptr<Communicator> part(const Communicator& whole, int rank, int size,
                                   const PartRanks& ranks) {
  const auto* const planned = dynamic_cast<const PlanningBackend*>(whole.implementation().get());
  if (planned == nullptr) return nullptr;
  return std::make_unique<Communicator>(planned->part(rank, size, ranks));
}

}  // namespace zero::planning
