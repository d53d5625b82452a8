// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <string>

#include "device/cuda/architectures.h"
#include "device/cuda/arena.h"
#include "device/cuda/capacity.h"
#include "device/cuda/check.h"
#include "device/cuda/gpus.h"
#include "device/cuda/kernels.h"
#include "device/cuda/stream.h"

namespace zero::cuda {
namespace {

constexpr int kPoints = 256;  // events created in advance; a step needs some for each unit
constexpr int kClocks = 64;

std::string text_of(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// "GPU-3d1c...", the format of nvidia-smi.
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += fmt::format("{}{:02x}", dash ? "-" : "", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "read a device's properties");
  return properties;
}

int count_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  ZERO_CHECK(
      status != cudaErrorInsufficientDriver || driver_version() != "none",
      "cuda: there is no NVIDIA driver here, and device \"cuda\" needs one; use a CPU device "
      "or a machine with a GPU");
  ZERO_CHECK(status != cudaErrorInsufficientDriver,
             "cuda: the NVIDIA driver is too old: it takes CUDA {}, this program was built with "
             "{}; install a newer driver",
             driver_version(), runtime_version());
  ZERO_CHECK(status != cudaErrorNoDevice && (status != cudaSuccess || count > 0),
             "cuda: the driver shows no GPU (CUDA_VISIBLE_DEVICES may hide them); use a CPU device "
             "or a machine with a GPU");
  check(status, "count the devices");
  return count;
}

int find_device(const Options& options) {
  const int count = count_devices();
  if (options.uuid.empty()) {
    ZERO_CHECK(options.index >= 0 && options.index < count,
               "cuda: device {} was asked for, {} visible; start no more ranks on a host than it "
               "has GPUs, or choose with CUDA_VISIBLE_DEVICES",
               options.index, count == 1 ? "1 is" : fmt::format("{} are", count));
    return options.index;
  }
  std::string seen;
  for (int index = 0; index < count; ++index) {
    const std::string uuid = uuid_text(properties_of(index).uuid);
    if (uuid == options.uuid) return index;
    seen += (seen.empty() ? "" : ", ") + uuid;
  }
  fail("cuda: no visible device is {}; there are: {}", options.uuid, seen);
}

struct Priorities {  // the smallest number has the highest priority
  int compute = 0;
  int communication = 0;
  int transfer = 0;
};

/// Communication comes first: its work is short, and other ranks wait for it. Transfers come last:
/// they run beside the steps.
Priorities priorities() {
  int lowest = 0;
  int highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "read the priorities of streams");
  return {.compute = std::max(lowest - 1, highest), .communication = highest, .transfer = lowest};
}

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, const cudaDeviceProp& properties, const BytesByClass& reserve)
      : index_(index),
        name_(fmt::format("cuda:{}", index)),
        bits_(fmt::format("cuda sm_{}{}", properties.major, properties.minor)),
        arenas_(name_, reserve),
        pools_{std::make_shared<EventPool>(cudaEventDisableTiming, kPoints),
               std::make_shared<EventPool>(cudaEventDefault, kClocks)},
        compute_(index, priorities().compute, pools_),
        communication_(index, priorities().communication, pools_),
        transfer_(index, priorities().transfer, pools_),
        kernels_(*this, properties.multiProcessorCount) {}

  ~CudaDevice() override {
    compute_.drain();  // the kernels' scratch must not be in use
    communication_.drain();
    transfer_.drain();
  }

  std::string_view name() const override { return name_; }
  DeviceKind kind() const override { return DeviceKind::cuda; }
  bool has_memory() const override { return true; }
  int threads() const override { return 1; }
  Stream& compute() override { return compute_; }
  Stream& communication() override { return communication_; }
  Stream& transfer() override { return transfer_; }
  Kernels& kernels() override { return kernels_; }
  std::string bits() const override { return bits_; }
  zero::MemorySpace memory() const override { return zero::MemorySpace::device; }
  PieceSizes piece_sizes() const override { return kGpuPieces; }
  MemoryCapacity capacity() const override {
    activate();
    return current_capacity();
  }

 protected:
  void* allocate_bytes(std::int64_t bytes, MemoryClass memory_class) override {
    activate();
    void* const data = arenas_.of(memory_class).take(bytes);
    if (data != nullptr) in_arenas_ += bytes;
    return data;
  }
  void free_bytes(void* data, std::int64_t bytes, MemoryClass memory_class) noexcept override {
    static_cast<void>(cudaSetDevice(index_));
    arenas_.of(memory_class).give_back(data, bytes);
    in_arenas_ -= bytes;
  }
  void* allocate_host_bytes(std::int64_t bytes, MemoryClass /*memory_class*/) override {
    activate();
    void* data = nullptr;
    const cudaError_t status = cudaMallocHost(&data, static_cast<std::size_t>(bytes));
    if (status != cudaErrorMemoryAllocation) check(status, "allocate pinned memory");
    cudaGetLastError();  // clears it: the caller reports it, with the ledger
    return data;
  }
  void free_host_bytes(void* data, std::int64_t /*bytes*/,
                       MemoryClass /*memory_class*/) noexcept override {
    static_cast<void>(cudaFreeHost(data));
  }
  BytesByClass arena_bytes() const override { return arenas_.high_water(); }
  std::int64_t unused_bytes() const override { return arenas_.taken() - in_arenas_; }

  std::string memory_report() const override {
    std::size_t free = 0;
    std::size_t total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) return {};
    return fmt::format("{} bytes taken from the driver for them, {} of the GPU's {} free",
                       arenas_.taken(), free, total);
  }

 private:
  void activate() const { check(cudaSetDevice(index_), "choose the device"); }

  int index_;
  std::string name_;
  std::string bits_;
  Arenas arenas_;
  std::int64_t in_arenas_ = 0;  // of buffers
  CudaStream::Pools pools_;
  CudaStream compute_;
  CudaStream communication_;
  CudaStream transfer_;
  CudaKernels kernels_;
};

}  // namespace

std::string runtime_version() {
  int version = 0;
  check(cudaRuntimeGetVersion(&version), "read the runtime's version");
  return text_of(version);
}

std::string driver_version() {
  int version = 0;
  check(cudaDriverGetVersion(&version), "read the driver's version");
  return version > 0 ? text_of(version) : "none";
}

int visible_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // clears it: open() reports the cause
  return 0;
}

MemoryCapacity capacity_of(int index) {
  check(cudaSetDevice(find_device({.index = index})), "choose the device");
  return current_capacity();
}

int index_of_rank(int local_rank) {
  const int visible = visible_devices();
  if (visible == 1) return 0;
  ZERO_CHECK(visible == 0 || local_rank < visible,
             "cuda: this is rank {} of its host, from 0, and its process sees {} GPUs; start no "
             "more ranks on a host than it has GPUs and let every process see all of them (srun "
             "--gpus-per-node=N --gpu-bind=none, without CUDA_VISIBLE_DEVICES) or one of its own",
             local_rank, visible);
  return local_rank;
}

std::string uuid_of(int index) {
  return uuid_text(properties_of(find_device({.index = index})).uuid);
}

std::optional<MissingCode> missing_code(int index) {
  if (index >= visible_devices()) return std::nullopt;
  Capability gpu;
  const auto read = [&](int& value, cudaDeviceAttr attribute) {
    check(cudaDeviceGetAttribute(&value, attribute, index), "read a device's compute capability");
  };
  read(gpu.major, cudaDevAttrComputeCapabilityMajor);
  read(gpu.minor, cudaDevAttrComputeCapabilityMinor);
  if (has_code_for(ZERO_CUDA_CODE, gpu)) return std::nullopt;
  return MissingCode{
      .why = fmt::format("this build has code for {} and none for GPU {}, {} of compute "
                         "capability {}.{}",
                         ZERO_CUDA_CODE, index, properties_of(index).name, gpu.major, gpu.minor),
      .remedy = fmt::format("configure with -DZERO_CUDA_ARCHITECTURES={}", architecture_of(gpu))};
}

std::unique_ptr<Device> open(const Options& options) {
  const int index = find_device(options);
  if (const auto missing = missing_code(index)) {
    fail("cuda: {}; {}, or use a CPU device", missing->why, missing->remedy);
  }
  check(cudaSetDevice(index), "choose the device");
  return std::make_unique<CudaDevice>(index, properties_of(index), options.reserve);
}

}  // namespace zero::cuda
