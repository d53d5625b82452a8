// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>

#include "base/checked_math.h"
#include "device/arena_layout.h"
#include "device/cpu/primitives.h"
#include "device/device.h"
#include "device/kernel_scratch.h"
#include "device/planning/clocked_stream.h"

namespace zero::planning {
namespace {

/// Runs nothing: drops all submitted work; every event is complete.
class DroppingStream final : public Stream {
 public:
  Event record() override { return {}; }
  void synchronize() override {}
  double waited_seconds() const override { return 0; }

 private:
  void do_submit(std::string_view /*what*/, Work /*work*/) override {}
  void do_wait(const Event& /*event*/) override {}
};

/// The streams of a device: without a clock they drop work, with one they share it.
class Streams {
 public:
  explicit Streams(const ClockOptions& options) {
    if (options.times != nullptr) clock_ = std::make_shared<VirtualClock>(options);
  }
  std::unique_ptr<Stream> make(WorkTimes::Lane lane) const {
    if (!clock_) return std::make_unique<DroppingStream>();
    return std::make_unique<ClockedStream>(lane, clock_);
  }

 private:
  std::shared_ptr<VirtualClock> clock_;
};

class PlanningDevice final : public Device {
 public:
  /// `blocks`: whose memory it has.
  PlanningDevice(int threads, MemorySpace memory, DeviceKind kind, DeviceKind blocks,
                 const Streams& streams)
      : threads_(threads),
        memory_(memory),
        kind_(kind),
        compute_(streams.make(WorkTimes::Lane::compute)),
        communication_(streams.make(WorkTimes::Lane::communication)),
        transfer_(streams.make(WorkTimes::Lane::transfer)),
        kernels_(*compute_, threads) {
    if (blocks == DeviceKind::cpu) return;
    arenas_.emplace().fill(ArenaLayout(kArena));
    scratch_.emplace(*this);
  }

  std::string_view name() const override {
    return kind_ == DeviceKind::cuda ? "planning cuda" : "planning";
  }
  DeviceKind kind() const override { return kind_; }
  bool has_memory() const override { return false; }
  MemorySpace memory() const override { return memory_; }
  int threads() const override { return threads_; }
  Stream& compute() override { return *compute_; }
  Stream& communication() override { return *communication_; }
  Stream& transfer() override { return *transfer_; }
  Kernels& kernels() override { return kernels_; }
  std::string bits() const override { return cpu::bits(); }
  PieceSizes piece_sizes() const override { return arenas_ ? kGpuPieces : PieceSizes(); }

 protected:
  void* allocate_bytes(std::int64_t bytes, MemoryClass memory_class) override {
    if (!arenas_) return address(bytes);
    const auto begin = arena(memory_class).take(bytes);
    if (begin) in_arenas_ += bytes;
    return begin ? name_of(arena_begin(memory_class) + *begin) : nullptr;
  }
  void free_bytes(void* data, std::int64_t bytes, MemoryClass memory_class) noexcept override {
    if (!arenas_) return;
    const auto at = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data));
    arena(memory_class).give_back(at - arena_begin(memory_class), bytes);
    in_arenas_ -= bytes;
  }
  void* allocate_host_bytes(std::int64_t bytes, MemoryClass /*memory_class*/) override {
    return address(bytes);
  }
  void free_host_bytes(void* /*data*/, std::int64_t /*bytes*/,
                       MemoryClass /*memory_class*/) noexcept override {}
  /// Of blocks as large as the plan so far; none on a CPU, where nothing is taken.
  std::int64_t unused_bytes() const override {
    return arenas_ ? DeviceBytes{.arenas = arena_bytes()}.in_pages() - in_arenas_ : 0;
  }
  BytesByClass arena_bytes() const override {
    BytesByClass bytes{};
    for (std::size_t c = 0; arenas_ && c < bytes.size(); ++c) bytes[c] = (*arenas_)[c].high_water();
    return bytes;
  }

 private:
  static constexpr std::int64_t kPage = 4096;
  // Addresses that no x86-64 or AArch64 program can map, so that any access faults. Arenas come
  // after all other memory.
  static constexpr std::int64_t kBegin = std::int64_t{1} << 58;
  static constexpr std::int64_t kEnd = std::int64_t{1} << 62;
  static constexpr std::int64_t kArena = std::int64_t{1} << 58;

  /// An address without memory.
  static void* name_of(std::int64_t address) {
    return reinterpret_cast<void*>(address);  // NOLINT: never followed
  }
  static std::int64_t arena_begin(MemoryClass memory_class) {
    return kEnd + static_cast<std::int64_t>(memory_class) * kArena;
  }
  ArenaLayout& arena(MemoryClass memory_class) {
    return (*arenas_)[static_cast<std::size_t>(memory_class)];
  }
  /// An address that no other buffer ever has.
  void* address(std::int64_t bytes) {
    const std::int64_t length = round_up(bytes, kPage) + kPage;
    if (length > kEnd - next_) return nullptr;
    const std::int64_t address = next_;
    next_ += length;
    return name_of(address);
  }

  int threads_;
  MemorySpace memory_;
  DeviceKind kind_;
  std::int64_t next_ = kBegin;
  std::int64_t in_arenas_ = 0;  // of buffers
  std::unique_ptr<Stream> compute_;
  std::unique_ptr<Stream> communication_;
  std::unique_ptr<Stream> transfer_;
  cpu::CpuKernels kernels_;
  std::optional<std::array<ArenaLayout, kMemoryClasses>> arenas_;  // of the device it stands for
  std::optional<KernelScratch> scratch_;
};

}  // namespace

std::unique_ptr<Device> open(const ClockOptions& clock, int threads, MemorySpace memory,
                             DeviceKind kind) {
  ZERO_CHECK(threads > 0, "planning device: threads is {}, expected at least 1", threads);
  return std::make_unique<PlanningDevice>(threads, memory, kind, kind, Streams(clock));
}

std::unique_ptr<Device> open(int threads, MemorySpace memory, DeviceKind kind) {
  return open(ClockOptions(), threads, memory, kind);
}

std::unique_ptr<Device> open_gpu_memory(const ClockOptions& clock) {
  return std::make_unique<PlanningDevice>(1, MemorySpace::device, DeviceKind::cpu, DeviceKind::cuda,
                                          Streams(clock));
}

std::unique_ptr<Device> open_gpu_memory() { return open_gpu_memory(ClockOptions()); }

}  // namespace zero::planning
