// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_device.h"

#include <cstring>
#include <utility>

#include "device/cpu/memory.h"
#include "device/cpu/primitives.h"
#include "tests/support/closed_memory.h"
#include "tests/support/order.h"

namespace zero::testing {
namespace {

class QueuedStream final : public Stream {
 public:
  QueuedStream(std::shared_ptr<Order> order, int index, ClosedMemory* closed)
      : order_(std::move(order)), index_(index), closed_(closed) {}

  Event record() override { return order_->record(index_); }
  void synchronize() override { order_->synchronize(index_); }
  double waited_seconds() const override { return order_->waited_seconds(index_); }

 private:
  void do_submit(std::string_view what, Work work) override {
    order_->submit(index_, what, std::move(work), closed_);
  }
  void do_submit_host(std::string_view what, Work work) override {
    order_->submit(index_, what, std::move(work), nullptr);
  }
  void do_wait(const Event& event) override { order_->wait(index_, event); }

  std::shared_ptr<Order> order_;
  int index_;
  ClosedMemory* closed_;
};

class TestDevice final : public Device {
 public:
  explicit TestDevice(const StreamOrder& order)
      : pieces_(order.pieces),
        closed_(order.memory == MemorySpace::device ? std::make_unique<ClosedMemory>() : nullptr),
        order_(std::make_shared<Order>(order)),
        compute_(order_, 0, closed_.get()),
        communication_(order_, 1, closed_.get()),
        transfer_(order_, 2, closed_.get()),
        kernels_(compute_, 1) {}
  ~TestDevice() override { order_->drop(); }

  std::string_view name() const override { return "test"; }
  bool has_memory() const override { return true; }
  MemorySpace memory() const override { return closed_ ? MemorySpace::device : MemorySpace::host; }
  int threads() const override { return 1; }
  Stream& compute() override { return compute_; }
  Stream& communication() override { return communication_; }
  Stream& transfer() override { return transfer_; }
  Kernels& kernels() override { return kernels_; }
  std::string bits() const override { return cpu::bits(); }
  PieceSizes piece_sizes() const override { return pieces_; }

 protected:
  // All bits set is a NaN in every floating dtype.
  void* allocate_bytes(std::int64_t bytes, MemoryClass memory_class) override {
    return closed_ ? closed_->take(bytes) : allocate_host_bytes(bytes, memory_class);
  }
  void free_bytes(void* data, std::int64_t bytes, MemoryClass memory_class) noexcept override {
    if (!closed_) return free_host_bytes(data, bytes, memory_class);
    closed_->give_back(data, bytes);
  }
  void* allocate_host_bytes(std::int64_t bytes, MemoryClass /*memory_class*/) override {
    void* const data = cpu::allocate_memory(bytes);
    if (data != nullptr) std::memset(data, 0xff, static_cast<std::size_t>(bytes));
    return data;
  }
  void free_host_bytes(void* data, std::int64_t bytes,
                       MemoryClass /*memory_class*/) noexcept override {
    cpu::free_memory(data, bytes);
  }

 private:
  PieceSizes pieces_;
  std::unique_ptr<ClosedMemory> closed_;
  std::shared_ptr<Order> order_;
  QueuedStream compute_;
  QueuedStream communication_;
  QueuedStream transfer_;
  cpu::CpuKernels kernels_;
};

}  // namespace

std::vector<StreamOrder> stream_orders(std::uint64_t seeded) {
  std::vector<StreamOrder> all{
      {.policy = StreamOrder::Policy::lazy},
      {.policy = StreamOrder::Policy::lazy, .memory = MemorySpace::device}};
  for (std::uint64_t seed = 0; seed < seeded; ++seed)
    all.push_back({.policy = StreamOrder::Policy::seeded, .seed = seed});
  return all;
}

std::unique_ptr<Device> open(const StreamOrder& order) {
  return std::make_unique<TestDevice>(order);
}

}  // namespace zero::testing
