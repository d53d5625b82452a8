// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends.h"
#include "collectives/in_process_store.h"
#include "collectives/nccl/plan.h"

namespace zero::planning {
namespace {

// A rank without peers: calls are checked, nothing is submitted.
class PlanningBackend final : public CollectiveBackend {
 public:
  PlanningBackend(int rank, int size, BackendKind backend, Device* device)
      : CollectiveBackend(std::make_shared<CallContext>()),
        rank_(rank),
        size_(size),
        backend_(backend),
        device_(device) {
    ZERO_CHECK(size >= 1 && rank >= 0 && rank < size,
               "planning: rank {} is outside a world of {} ranks", rank, size);
    if (device != nullptr && of_nccl()) scratch_ = nccl::take_scratch(*device, size);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return rank_; }
  int local_size() const override { return size_; }
  BackendKind kind() const override { return BackendKind::planning; }
  std::string_view description() const override { return "nothing moves"; }

  // The other ranks' colors are unknown, so only trivial splits are possible.
  std::shared_ptr<CollectiveBackend> split(int color, int key) override {
    static_cast<void>(key);
    if (color < 0) return nullptr;
    ZERO_CHECK(size_ == 1,
               "[rank {}] split: a planning communicator of {} ranks does not know the colors of "
               "its peers; make one of the group's size with planning::part",
               rank_, size_);
    return part(rank_, size_);
  }
  Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label) override {
    if (&device == device_ && of_nccl() && nccl::gives_memory(size_, count, dtype)) {
      return device.adopt(nullptr, count, dtype, memory_class, label);
    }
    return device.allocate(count, dtype, memory_class, label);
  }
  Store& store() override { return store_; }
  /// A rank of a sub-group.
  std::shared_ptr<CollectiveBackend> part(int rank, int size) const {
    return std::make_shared<PlanningBackend>(rank, size, backend_, device_);
  }

  void all_gather(View, const Slices&, Stream&, const Tag&) override {}
  void reduce_scatter(const Slices&, const ReduceEpilogue&, View, Stream&, const Tag&) override {}
  std::int64_t reduce_scatter_workspace(const Slices& full) const override {
    return zero::reduce_scatter_workspace(backend_, full);
  }
  void all_reduce(View, ReduceOp, Stream&, const Tag&) override {}
  void all_to_all(const Slices&, const Slices&, Stream&, const Tag&) override {}
  void broadcast(View, int, Stream&, const Tag&) override {}
  void barrier(Stream&, const Tag&) override {}

 private:
  bool of_nccl() const {
    return backend_ == BackendKind::nccl || backend_ == BackendKind::nccl_fast;
  }

  int rank_;
  int size_;
  BackendKind backend_;  // of the run
  Device* device_;
  Buffer scratch_;
  InProcessStore store_;
};

}  // namespace

std::unique_ptr<Communicator> communicator(int rank, int size, BackendKind backend,
                                           Device* device) {
  static_cast<void>(zero::reduce_scatter_workspace(backend, {}));  // refuses a kind that has none
  return std::make_unique<Communicator>(
      std::make_shared<PlanningBackend>(rank, size, backend, device));
}

std::unique_ptr<Communicator> part(const Communicator& whole, int rank, int size) {
  const auto* const planned = dynamic_cast<const PlanningBackend*>(whole.implementation().get());
  if (planned == nullptr) return nullptr;
  return std::make_unique<Communicator>(planned->part(rank, size));
}

}  // namespace zero::planning
