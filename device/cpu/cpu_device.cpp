// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>

#include "device/cpu/inline_stream.h"
#include "device/cpu/kernels.h"
#include "device/cpu/memory.h"
#include "device/cpu/primitives.h"
#include "device/cpu/worker_stream.h"
#include "device/device.h"
#include "device/observed_stream.h"

namespace zero::cpu {
namespace {

class CpuDevice final : public Device {
 public:
  CpuDevice(const Options& options, StreamObserver* observer)
      : threads_(options.threads), kernels_(compute_, threads_) {
    if (observer != nullptr) observed_.emplace(compute_, *observer);
  }

  std::string_view name() const override { return "cpu"; }
  bool has_memory() const override { return true; }
  int threads() const override { return threads_; }
  Stream& compute() override {
    if (observed_) return *observed_;
    return compute_;
  }
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
  InlineStream compute_;
  std::optional<ObservedStream> observed_;
  WorkerStream communication_;
  CpuKernels kernels_;
};

std::unique_ptr<Device> open_with(const Options& options, StreamObserver* observer) {
  ZERO_CHECK(options.threads > 0, "cpu device: threads is {}, expected at least 1",
             options.threads);
  return std::make_unique<CpuDevice>(options, observer);
}

}  // namespace

std::unique_ptr<Device> open(const Options& options) { return open_with(options, nullptr); }

std::unique_ptr<Device> open(const Options& options, StreamObserver& observer) {
  return open_with(options, &observer);
}

}  // namespace zero::cpu
