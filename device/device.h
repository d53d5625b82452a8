// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "device/buffer.h"
#include "device/kernels.h"
#include "device/stream.h"

namespace zero {

/// Where a device's memory is.
enum class Memory : std::uint8_t {
  of_host,  ///< kernels and host code see all memory
  apart,    ///< kernels see what allocate() gives, host code does not: CUDA
};

/// The most memory that a device apart from the host has needed for its buffers so far: the bytes
/// asked for, the alignment and the gaps between buffers. All zero on devices in host memory.
struct DeviceBytes {
  /// Memory comes from a GPU's driver in pages of this size.
  static constexpr std::int64_t kPage = std::int64_t{2} << 20;

  BytesByClass arenas{};     ///< of the block that holds a class's buffers (ArenaLayout)
  std::int64_t adopted = 0;  ///< beside the blocks, in pages: Device::adopt()

  /// All of it, each block in whole pages.
  std::int64_t in_pages() const;
  friend bool operator==(const DeviceBytes&, const DeviceBytes&) = default;
};

/// The chunks that long work is cut into on a device: large enough to keep it busy, small beside
/// its memory. Ranks compare them: sums over chunks of rows may depend on their length.
struct PieceSizes {
  std::int64_t logit_rows = 512;                        ///< rows of logits that exist at a time
  std::int64_t received_bytes = std::int64_t{8} << 20;  ///< of one reduce-scatter's receive slices
  std::int64_t logit_columns = 1;  ///< rows of logits are padded to multiples of so many elements
};
/// Of GPUs, whose products read 16 bytes at once, and by TMA: rows of logits must begin aligned.
inline constexpr PieceSizes kGpuPieces{4096, std::int64_t{64} << 20, 64};

/// Where bytes live and work runs: memory with its ledger, one compute stream, one communication
/// stream, vector kernels. Host code never reads or writes memory of allocate() itself, wherever it
/// may lie: it copies it from or to host memory (Kernels::convert), on a stream. Used by one host
/// thread (a rank). Must outlive its Buffers, and everything submitted to its streams.
class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// "cpu", "planning", "cuda:0".
  virtual std::string_view name() const = 0;
  /// False for the planning device: its views have addresses that must not be touched, its streams
  /// run nothing.
  virtual bool has_memory() const = 0;
  /// Threads that compute kernels may use (CPU), 1 elsewhere.
  virtual int threads() const = 0;
  virtual Stream& compute() = 0;
  virtual Stream& communication() = 0;
  virtual Kernels& kernels() = 0;
  /// Names all that decides the bits of results, beside the version of this library: equal on
  /// devices that compute alike ("cpu AVX3_SPR", "cuda sm_90"). Ranks compare it.
  virtual std::string bits() const = 0;
  /// Whether its kernels work on host memory, and host code could on the device's. Asked by the
  /// helpers that copy where they must (DeviceTwin, HostPieces, host_all_reduce); others use those.
  virtual Memory memory() const { return Memory::of_host; }

  virtual PieceSizes piece_sizes() const { return {}; }

  MemoryLedger& ledger() { return ledger_; }

  /// Memory for `count` elements, aligned to 64 bytes at least (pages for large buffers),
  /// uninitialised, charged to `memory_class` under `label`. Zero elements give an empty buffer.
  /// Throws zero::Error, with the ledger, when out of memory.
  Buffer allocate(std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label);
  /// Host memory that the device copies from and to fastest (pinned, for a GPU). Its views have no
  /// device: host code may use them, behind the streams that do. Otherwise as allocate().
  Buffer allocate_host(std::int64_t count, DType dtype, MemoryClass memory_class,
                       std::string_view label);
  /// A buffer of memory of this device that a library gave and takes back with the last owner of
  /// `memory` (registered windows): charged as allocate() charges. For a plan's device `memory` is
  /// null. `count` > 0.
  Buffer adopt(std::shared_ptr<void> memory, std::int64_t count, DType dtype,
               MemoryClass memory_class, std::string_view label);
  /// The memory that buffers have needed so far. A planning device gives the run's.
  DeviceBytes device_bytes() const { return {arena_bytes(), most_adopted_}; }

 protected:
  /// `bytes` > 0. Returns null when there is no memory.
  virtual void* allocate_bytes(std::int64_t bytes, MemoryClass memory_class) = 0;
  /// Frees memory of allocate_bytes(), given the same arguments.
  virtual void free_bytes(void* data, std::int64_t bytes, MemoryClass memory_class) noexcept = 0;
  /// The same for host memory; a device in host memory has but one kind.
  virtual void* allocate_host_bytes(std::int64_t bytes, MemoryClass memory_class) {
    return allocate_bytes(bytes, memory_class);
  }
  virtual void free_host_bytes(void* data, std::int64_t bytes, MemoryClass memory_class) noexcept {
    free_bytes(data, bytes, memory_class);
  }
  virtual BytesByClass arena_bytes() const { return {}; }
  /// The device's own figures of its memory, for the message that memory is out; may be empty.
  virtual std::string memory_report() const { return {}; }

 private:
  struct Source;
  Buffer allocate_from(const Source& source, std::int64_t count, DType dtype,
                       MemoryClass memory_class, std::string_view label);

  MemoryLedger ledger_;
  std::int64_t adopted_ = 0;  // in pages
  std::int64_t most_adopted_ = 0;
};

namespace cpu {

struct Options {
  int threads = 1;  ///< for compute kernels of this rank
};

/// The CPU as a device: the compute stream runs inline on the caller, the communication stream is a
/// worker thread.
std::unique_ptr<Device> open(const Options& options = {});

}  // namespace cpu

namespace cuda {

struct Options {
  int index = 0;       ///< among the GPUs that the driver shows: a rank's number on its host
  std::string uuid{};  ///< "GPU-3d1c02fe-...", as nvidia-smi -L has it: chooses instead of index
  /// The bytes that buffers will need, by a plan: taken from the driver at once, a block for each
  /// class. Classes without bytes, and buffers that a block cannot hold, take memory as they come.
  BytesByClass reserve{};
};

/// A GPU, by CUDA, named "cuda:0": both streams are queues of the GPU, communication with the
/// higher priority; its memory is closed to host code. Makes the GPU the calling thread's current
/// one. Throws zero::Error, with the remedy, if the build, the driver or the machine has no GPU, or
/// too little memory to reserve.
std::unique_ptr<Device> open(const Options& options = {});

/// How many GPUs open() can take; 0 where the build, the driver or the machine has none.
int visible_devices();

}  // namespace cuda

namespace planning {

/// A device without memory: allocations only charge the ledger (their addresses are distinct,
/// aligned and unmapped), streams drop work. The planner runs the same code on it as a run does, so
/// plan and run cannot drift: with `memory` apart, on one that has what a GPU's run has. `of`: the
/// kind of device that it stands for ("cuda"), whose operations and optimizers it then gets; its
/// buffers lie as they will in that device's arenas.
std::unique_ptr<Device> open(int threads = 1, Memory memory = Memory::of_host,
                             std::string_view of = {});

}  // namespace planning

namespace testing {

/// How the test device orders work that the recorded dependencies leave open.
struct StreamOrder {
  enum class Policy {
    lazy,    ///< run everything as late as the waits allow: only what a synchronize needs,
             ///< transitively
    seeded,  ///< a random legal interleaving, from the seed; sometimes eager, sometimes late
  };
  Policy policy = Policy::lazy;
  std::uint64_t seed = 0;
  /// Apart: what allocate() gives is closed (any access faults) but while submitted work runs on
  /// one of its streams; host code between calls and work of submit_host() finds it closed.
  Memory memory = Memory::of_host;
};

/// A CPU device whose compute and communication streams both queue and run on the calling thread in
/// the given order. A forgotten wait in either direction then gives wrong values deterministically.
/// synchronize() of either stream or of an event runs what it needs. Memory is poisoned on
/// allocation.
std::unique_ptr<Device> open(const StreamOrder& order);

}  // namespace testing

}  // namespace zero
