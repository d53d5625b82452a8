// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "device/cpu/inline_stream.h"
#include "device/cpu/kernels.h"
#include "device/cpu/memory.h"
#include "device/cpu/observed_stream.h"
#include "device/cpu/primitives.h"
#include "device/cpu/worker_stream.h"
#include "device/device.h"

namespace zero::cpu {
namespace {

class CpuDevice final : public Device {
 public:
  CpuDevice(int threads, std::unique_ptr<Stream> compute)
      : threads_(threads), compute_(std::move(compute)), kernels_(*compute_, threads) {}

  std::string_view name() const override { return "cpu"; }
  bool has_memory() const override { return true; }
  int threads() const override { return threads_; }
  Stream& compute() override { return *compute_; }
  Stream& communication() override { return communication_; }
  Kernels& kernels() override { return kernels_; }
  std::string bits() const override { return cpu::bits(); }

 protected:
  void* allocate_bytes(std::int64_t bytes, MemoryClass /*memory_class*/) override {
    return allocate_memory(bytes);
  }
  void free_bytes(void* data, std::int64_t bytes, MemoryClass /*memory_class*/) noexcept override {
    free_memory(data, bytes);
  }

 private:
  int threads_;
  std::unique_ptr<Stream> compute_;
  WorkerStream communication_;
  CpuKernels kernels_;
};

std::unique_ptr<Device> open_with(const Options& options, std::unique_ptr<Stream> compute) {
  ZERO_CHECK(options.threads > 0, "cpu device: threads is {}, expected at least 1",
             options.threads);
  return std::make_unique<CpuDevice>(options.threads, std::move(compute));
}

}  // namespace

std::unique_ptr<Device> open(const Options& options) {
  return open_with(options, std::make_unique<InlineStream>());
}

std::unique_ptr<Device> open(const Options& options, StreamObserver& observer) {
  return open_with(options, std::make_unique<ObservedStream>(observer));
}

}  // namespace zero::cpu
