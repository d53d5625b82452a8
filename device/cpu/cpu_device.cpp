// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <memory>

#include "base/cgroup.h"
#include "base/nanoseconds.h"
#include "device/cpu/memory.h"
#include "device/cpu/primitives.h"
#include "device/cpu/progress.h"
#include "device/cpu/worker_stream.h"
#include "device/device.h"

namespace zero::cpu {
namespace {

/// A stream whose work runs on the caller, inside submit(). Waiting for another stream's event
/// blocks the caller, on whose thread the stream runs.
class InlineStream final : public Stream {
 public:
  Event record() override;
  void synchronize() override { progress_->rethrow(); }
  double waited_seconds() const override { return to_seconds(waited_.load()); }

 private:
  void do_submit(std::string_view what, Work work) override;
  void do_wait(const Event& event) override;

  std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  std::atomic<std::int64_t> waited_{0};  // nanoseconds
};

void InlineStream::do_submit(std::string_view what, Work work) {
  progress_->rethrow();
  try {
    work();
  } catch (...) {
    progress_->advance(current_error(what));
    progress_->rethrow();
  }
}

Event InlineStream::record() {
  return progress_->failed() ? event_at(progress_, progress_->done()) : Event();
}

void InlineStream::do_wait(const Event& event) {
  progress_->rethrow();
  try {
    wait_and_count(event, waited_);
  } catch (...) {
    progress_->advance(current_error("wait"));
    progress_->rethrow();
  }
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const Options& options)
      : threads_(options.threads), kernels_(compute_, threads_) {}

  std::string_view name() const override { return "cpu"; }
  bool has_memory() const override { return true; }
  int threads() const override { return threads_; }
  Stream& compute() override { return compute_; }
  Stream& communication() override { return communication_; }
  Stream& transfer() override {
    if (!transfer_) transfer_ = std::make_unique<WorkerStream>();
    return *transfer_;
  }
  Kernels& kernels() override { return kernels_; }
  std::string bits() const override { return cpu::bits(); }
  MemoryCapacity capacity() const override {
    return {.total = total_memory().value_or(0), .free = available_memory().value_or(0)};
  }

 protected:
  void* allocate_bytes(std::int64_t bytes, MemoryClass /*memory_class*/) override {
    void* const data = allocate_memory(bytes);
    if (data != nullptr) unused_ += taken_by(bytes) - bytes;
    return data;
  }
  void free_bytes(void* data, std::int64_t bytes, MemoryClass /*memory_class*/) noexcept override {
    free_memory(data, bytes);
    unused_ -= taken_by(bytes) - bytes;
  }
  std::int64_t unused_bytes() const override { return unused_; }

 private:
  int threads_;
  std::atomic<std::int64_t> unused_{0};  // buffers may end on other threads
  InlineStream compute_;
  WorkerStream communication_;
  std::unique_ptr<WorkerStream> transfer_;  // most runs need none
  CpuKernels kernels_;
};

}  // namespace

std::unique_ptr<Device> open(const Options& options) {
  ZERO_CHECK(options.threads > 0, "cpu device: threads is {}, expected at least 1",
             options.threads);
  return std::make_unique<CpuDevice>(options);
}

}  // namespace zero::cpu
