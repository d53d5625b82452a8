// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/queue_device.h"

#include <chrono>
#include <random>
#include <thread>

#include "device/cpu/memory.h"
#include "device/cpu/primitives.h"
#include "device/cpu/worker_stream.h"

namespace zero::test {
namespace {

class QueueStream final : public Stream {
 public:
  bool enqueues() const override { return true; }
  Event record() override { return queue_.record(); }
  void synchronize() override { queue_.synchronize(); }
  double waited_seconds() const override { return queue_.waited_seconds(); }

  Stream& queue() { return queue_; }

 private:
  void do_submit(std::string_view /*what*/, Work work) override { work(); }
  void do_submit_host(std::string_view what, Work work) override {
    queue_.submit(what, std::move(work));
  }
  void do_wait(const Event& event) override { queue_.wait(event); }

  cpu::WorkerStream queue_;
};

/// The CPU's kernels, as commands of a queue.
class QueueKernels final : public Kernels {
 public:
  QueueKernels(const Stream& compute, unsigned seed) : random_(seed), kernels_(compute, 1) {}

  void convert(Stream& stream, View from, View to) override {
    kernels_.convert(queue_of(stream), from, to);
  }
  void zero(Stream& stream, View view) override { kernels_.zero(queue_of(stream), view); }
  void poison(Stream& stream, View view) override { kernels_.poison(queue_of(stream), view); }
  void generate(Stream& stream, View to, Source source) override {
    kernels_.generate(queue_of(stream), to, std::move(source));
  }
  void tree_reduce(Stream& stream, std::vector<View> inputs, ReduceEpilogue epilogue) override {
    kernels_.tree_reduce(queue_of(stream), std::move(inputs), std::move(epilogue));
  }
  void combine(Stream& stream, std::vector<View> inputs, ReduceOp op, View to) override {
    kernels_.combine(queue_of(stream), std::move(inputs), op, to);
  }

 private:
  Stream& queue_of(Stream& stream) {
    Stream& queue = static_cast<QueueStream&>(stream).queue();
    if (random_() % 16 == 0) {
      queue.submit("pause", [] { std::this_thread::sleep_for(std::chrono::microseconds(200)); });
    }
    return queue;
  }

  std::mt19937 random_;
  cpu::CpuKernels kernels_;
};

class QueueDevice final : public Device {
 public:
  explicit QueueDevice(unsigned seed) : kernels_(compute_, seed) {}

  std::string_view name() const override { return "queue"; }
  bool has_memory() const override { return true; }
  int threads() const override { return 1; }
  Stream& compute() override { return compute_; }
  Stream& communication() override { return communication_; }
  Stream& transfer() override { return transfer_; }
  Kernels& kernels() override { return kernels_; }
  std::string bits() const override { return cpu::bits(); }
  MemorySpace memory() const override { return MemorySpace::device; }

 protected:
  void* allocate_bytes(std::int64_t bytes, MemoryClass /*memory_class*/) override {
    return cpu::allocate_memory(bytes);
  }
  void free_bytes(void* data, std::int64_t bytes, MemoryClass /*memory_class*/) noexcept override {
    cpu::free_memory(data, bytes);
  }

 private:
  QueueStream compute_;
  QueueStream communication_;
  QueueStream transfer_;
  QueueKernels kernels_;
};

}  // namespace

std::unique_ptr<Device> open_queue_device(unsigned seed) {
  return std::make_unique<QueueDevice>(seed);
}

}  // namespace zero::test
