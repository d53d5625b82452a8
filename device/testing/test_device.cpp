// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <utility>

#include "device/cpu/kernels.h"
#include "device/cpu/memory.h"
#include "device/device.h"
#include "device/testing/order.h"

namespace zero::testing {
namespace {

class QueuedStream final : public Stream {
 public:
  QueuedStream(std::shared_ptr<Order> order, int index) : order_(std::move(order)), index_(index) {}

  void submit(std::string_view what, Work work) override {
    order_->submit(index_, what, std::move(work));
  }
  Event record() override { return order_->record(index_); }
  void wait(const Event& event) override { order_->wait(index_, event); }
  void synchronize() override { order_->synchronize(index_); }
  double waited_seconds() const override { return order_->waited_seconds(index_); }

 private:
  std::shared_ptr<Order> order_;
  int index_;
};

class TestDevice final : public Device {
 public:
  explicit TestDevice(const StreamOrder& order)
      : order_(std::make_shared<Order>(order)),
        compute_(order_, 0),
        communication_(order_, 1),
        kernels_(compute_, 1) {}
  ~TestDevice() override { order_->drop(); }

  std::string_view name() const override { return "test"; }
  bool has_memory() const override { return true; }
  int threads() const override { return 1; }
  Stream& compute() override { return compute_; }
  Stream& communication() override { return communication_; }
  Kernels& kernels() override { return kernels_; }

 protected:
  void* allocate_bytes(std::int64_t bytes) override {
    void* data = cpu::allocate_memory(bytes);
    // All bits set is a NaN in every floating dtype.
    if (data != nullptr) std::memset(data, 0xff, static_cast<std::size_t>(bytes));
    return data;
  }
  void free_bytes(void* data, std::int64_t bytes) noexcept override {
    cpu::free_memory(data, bytes);
  }

 private:
  std::shared_ptr<Order> order_;
  QueuedStream compute_;
  QueuedStream communication_;
  cpu::CpuKernels kernels_;
};

}  // namespace

std::unique_ptr<Device> open(const StreamOrder& order) {
  return std::make_unique<TestDevice>(order);
}

}  // namespace zero::testing
