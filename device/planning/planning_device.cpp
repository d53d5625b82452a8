// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/checked_math.h"
#include "device/cpu/kernels.h"
#include "device/cpu/primitives.h"
#include "device/device.h"

namespace zero::planning {
namespace {

/// Runs nothing: what is submitted is dropped, every event is complete.
class DroppingStream final : public Stream {
 public:
  void submit(std::string_view /*what*/, Work /*work*/) override {}
  Event record() override { return {}; }
  void wait(const Event& /*event*/) override {}
  void synchronize() override {}
  double waited_seconds() const override { return 0; }
};

class PlanningDevice final : public Device {
 public:
  PlanningDevice(int threads, Memory memory, std::string_view of)
      : threads_(threads),
        memory_(memory),
        name_(of.empty() ? "planning" : "planning " + std::string(of)),
        kernels_(compute_, threads) {}

  std::string_view name() const override { return name_; }
  bool has_memory() const override { return false; }
  Memory memory() const override { return memory_; }
  int threads() const override { return threads_; }
  Stream& compute() override { return compute_; }
  Stream& communication() override { return communication_; }
  Kernels& kernels() override { return kernels_; }
  std::string bits() const override { return cpu::bits(); }

 protected:
  void* allocate_bytes(std::int64_t bytes) override {
    const std::int64_t length = round_up(bytes, kPage) + kPage;
    if (length > kEnd - next_) return nullptr;
    const std::int64_t address = next_;
    next_ += length;
    return reinterpret_cast<void*>(address);  // NOLINT: a name for memory that does not exist
  }
  void free_bytes(void* /*data*/, std::int64_t /*bytes*/) noexcept override {}

 private:
  static constexpr std::int64_t kPage = 4096;
  // Not addresses that x86-64 or AArch64 programs can have, so that any use of one faults.
  static constexpr std::int64_t kBegin = std::int64_t{1} << 58;
  static constexpr std::int64_t kEnd = std::int64_t{1} << 62;

  int threads_;
  Memory memory_;
  std::string name_;
  std::int64_t next_ = kBegin;
  DroppingStream compute_;
  DroppingStream communication_;
  cpu::CpuKernels kernels_;
};

}  // namespace

std::unique_ptr<Device> open(int threads, Memory memory, std::string_view of) {
  ZERO_CHECK(threads > 0, "planning device: threads is {}, expected at least 1", threads);
  return std::make_unique<PlanningDevice>(threads, memory, of);
}

}  // namespace zero::planning
