// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "device/buffer.h"
#include "device/kernels.h"
#include "device/stream.h"

namespace zero {

/// Whose kernels, operations and optimizers work on a device.
enum class DeviceKind : std::uint8_t { cpu, cuda };

/// Which code can access a device's memory.
enum class MemorySpace : std::uint8_t {
  host,    ///< kernels and host code access all memory
  device,  ///< kernels access allocate()'s memory, host code cannot: CUDA
};

/// Bytes of memory that a device can have. Other programs change `free` at any time.
struct MemoryCapacity {
  std::int64_t total = 0;  ///< 0: unknown (a planning device)
  std::int64_t free = 0;   ///< of them; taken by nothing, or by caches that give way
};

/// The chunk sizes of long work on a device: large enough to keep the device busy, small relative
/// to its memory. Ranks compare them, because sums over chunks of rows may depend on the chunk
/// length.
struct PieceSizes {
  std::int64_t logit_rows = 1024;                       ///< rows of logits in memory at a time
  std::int64_t received_bytes = std::int64_t{8} << 20;  ///< receive slices of one reduce-scatter
  /// A row of logits is padded to a multiple of this: products read whole cache lines, and a GPU's
  /// 16-byte and TMA loads need aligned rows.
  std::int64_t logit_columns = 64;
};
/// Longer pieces, which keep a GPU busy.
inline constexpr PieceSizes kGpuPieces{4096, std::int64_t{64} << 20};

/// A CPU or GPU: memory with its ledger, a stream each for compute, communication and transfers,
/// vector kernels. Host code never accesses memory of allocate() directly, even on a CPU: it copies
/// from or to host memory on a stream (Kernels::convert). Used by one host thread (a rank). Must
/// outlive its Buffers and all work submitted to its streams.
class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// "cpu", "planning", "cuda:0".
  virtual std::string_view name() const = 0;
  /// Of a planning device: that of the device for which it plans.
  virtual DeviceKind kind() const { return DeviceKind::cpu; }
  /// False for the planning device: its views must not be dereferenced, its streams run nothing.
  virtual bool has_memory() const = 0;
  /// The number of threads for compute kernels (CPU); 1 on other devices.
  virtual int threads() const = 0;
  virtual Stream& compute() = 0;
  virtual Stream& communication() = 0;
  /// For copies between device and host memory, and host code that writes or reads files, beside
  /// the steps of a run. Host code of this stream may block on the disk, never on other ranks. A
  /// GPU's driver may run the host code of all streams on one thread: a block there delays the
  /// others'.
  virtual Stream& transfer() = 0;
  virtual Kernels& kernels() = 0;
  /// Names everything that decides the bits of results except the version of this library: equal on
  /// devices that give the same bits ("cpu AVX3_SPR", "cuda sm_90"). Ranks compare it.
  virtual std::string bits() const = 0;
  /// Whether kernels and host code share one memory. Only for the helpers that copy if they do not
  /// (DeviceMirror, HostAccess, host_all_reduce); other code uses those helpers.
  virtual MemorySpace memory() const { return MemorySpace::host; }

  virtual PieceSizes piece_sizes() const { return {}; }
  /// A GPU's memory, by its driver; for a CPU the host's, at most the limit of the process's
  /// control group. Asks the driver or reads files of /proc and /sys on each call: up to 1 ms.
  virtual MemoryCapacity capacity() const { return {}; }

  /// Ranges of files have whole blocks of so many bytes: as large as almost any disk's.
  static constexpr std::int64_t kFileBlock = 4096;

  MemoryLedger& ledger() { return ledger_; }
  /// The bytes of files that stand in for memory: none of the device's.
  MemoryLedger& file_ledger() { return file_ledger_; }

  /// Uninitialised memory for `count` elements, aligned to at least 64 bytes (pages for large
  /// buffers), charged to `memory_class` under `label`. Zero elements give an empty buffer. Throws
  /// zero::Error, with the ledger, if out of memory.
  Buffer allocate(std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label);
  /// Host memory with the fastest copies from and to the device (pinned, for a GPU). Its views have
  /// no device: host code may access them after the streams that do. Otherwise as allocate().
  Buffer allocate_host(std::int64_t count, DType dtype, MemoryClass memory_class,
                       std::string_view label);
  /// A buffer over device memory that a library allocated (registered windows) and frees with the
  /// last owner of `memory`; charged as in allocate(). `memory` is null on a planning device.
  /// `count` > 0.
  Buffer adopt(std::shared_ptr<void> memory, std::int64_t count, DType dtype,
               MemoryClass memory_class, std::string_view label);
  /// A range of a file that stands in for memory (TierFile): `bytes` > 0 elements of DType::u8 of
  /// this device, rounded up to a multiple of kFileBlock, at an address that is such a multiple, no
  /// other range's, and belongs to nothing: any access faults. Charged to the file ledger.
  Buffer name_file_range(std::int64_t bytes, MemoryClass memory_class, std::string_view label);
  /// The peak memory of buffers so far; on a planning device that of the run.
  DeviceBytes device_bytes() const { return {arena_bytes(), most_adopted_}; }
  /// The peak memory of allocate_host()'s buffers so far, which are in the ledger too: bytes.
  std::int64_t host_bytes() const { return most_on_host_; }
  /// Bytes taken from the driver or the host for the buffers of the ledger, in the pages and blocks
  /// in which they were taken: at least the ledger's total.
  std::int64_t reserved_bytes() const;

 protected:
  /// `bytes` > 0. Returns null if out of memory.
  virtual void* allocate_bytes(std::int64_t bytes, MemoryClass memory_class) = 0;
  /// Frees memory of allocate_bytes(); takes the same arguments.
  virtual void free_bytes(void* data, std::int64_t bytes, MemoryClass memory_class) noexcept = 0;
  /// The same for host memory; by default both kinds are one.
  virtual void* allocate_host_bytes(std::int64_t bytes, MemoryClass memory_class) {
    return allocate_bytes(bytes, memory_class);
  }
  virtual void free_host_bytes(void* data, std::int64_t bytes, MemoryClass memory_class) noexcept {
    free_bytes(data, bytes, memory_class);
  }
  virtual BytesByClass arena_bytes() const { return {}; }
  /// Bytes that allocate_bytes() has taken beyond those of its buffers: pages, gaps of blocks.
  virtual std::int64_t unused_bytes() const { return 0; }
  /// The device's own memory figures, for the out-of-memory message; may be empty.
  virtual std::string memory_report() const { return {}; }

 private:
  struct Source;
  Buffer allocate_from(const Source& source, std::int64_t count, DType dtype,
                       MemoryClass memory_class, std::string_view label);

  MemoryLedger ledger_;
  MemoryLedger file_ledger_;
  std::int64_t named_ = 0;    // bytes of addresses given to ranges of files
  std::int64_t adopted_ = 0;  // in pages
  std::int64_t most_adopted_ = 0;
  std::int64_t adopted_unused_ = 0;  // of adopted_, beyond its buffers
  std::int64_t on_host_ = 0;         // of allocate_host()
  std::int64_t most_on_host_ = 0;
};

namespace cpu {

struct Options {
  int threads = 1;  ///< for compute kernels of this rank
};

/// The CPU as a device: the compute stream runs inline on the caller, the communication stream is a
/// worker thread, and so is the transfer stream from its first use on.
std::unique_ptr<Device> open(const Options& options = {});

}  // namespace cpu

namespace cuda {

struct Options {
  int index = 0;       ///< among the visible GPUs: a rank's number on its host
  std::string uuid{};  ///< "GPU-3d1c02fe-..." (nvidia-smi -L): overrides index
  /// The planned bytes of the buffers, reserved from the driver by open(), one block for each
  /// class. Classes without bytes, and buffers too large for their block, allocate on demand.
  BytesByClass reserve{};
};

/// A GPU, by CUDA, named "cuda:0": all streams are CUDA streams, communication with the highest
/// priority, transfers with the lowest; host code cannot access its memory. Makes the GPU current
/// on the calling thread. Throws zero::Error, with the remedy, if the build, the driver or the
/// machine has no GPU, if the build has no code for it, or if it has too little memory to reserve.
std::unique_ptr<Device> open(const Options& options = {});

/// The number of GPUs that the driver shows; 0 if the build, the driver or the machine has none.
/// The build may lack code for some (cuda::missing_code()).
int visible_devices();

/// Bytes of a GPU that plans leave to CUDA's context, its libraries, and kernels and graphs that
/// are loaded while a run goes on: these take several hundred MiB, and fail or slow a run that has
/// taken all.
inline constexpr std::int64_t kLeftToLibraries = std::int64_t{1} << 30;

/// Memory of GPU `index`, which becomes current on the calling thread; the build needs no code for
/// it. Throws zero::Error if there is no such GPU.
MemoryCapacity capacity_of(int index);

}  // namespace cuda

namespace planning {

/// A device without memory: allocations only charge the ledger (their addresses are distinct,
/// aligned and unmapped), streams drop work. A plan runs the code of a run on this device, so the
/// two cannot drift; `memory` must be that of the run's device (device for a GPU), `kind` its kind,
/// which selects its operations, its optimizers and its arena layout.
std::unique_ptr<Device> open(int threads = 1, MemorySpace memory = MemorySpace::host,
                             DeviceKind kind = DeviceKind::cpu);
/// The same with a GPU's memory, pieces and arenas, but a CPU's operations and optimizers: for
/// plans of GPUs in a build without CUDA. All figures are the GPU's, except the scratch of
/// operations.
std::unique_ptr<Device> open_gpu_memory();

}  // namespace planning

}  // namespace zero
