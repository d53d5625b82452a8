// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// What GPUs have, by the driver's library.
#include <dlfcn.h>

#include <array>
#include <limits>
#include <memory>
#include <utility>

#include "base/error.h"
#include "launch/memory/machine_memory.h"

namespace zero {
namespace {

// The part of NVML's binary interface that is used here, which every driver since 2021 has.
using NvmlDevice = void*;
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlNoPermission = 4;
constexpr int kNvmlInsufficientSize = 7;
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlProcess {
  unsigned int pid;
  unsigned long long bytes;  // all ones: not known
  unsigned int instance, compute_instance;
};

struct CloseLibrary {
  void operator()(void* library) const { ::dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

/// The library's functions, and the library's use from begin to end.
class Nvml {
 public:
  /// Throws zero::Error if the library lacks a function, or finds no driver.
  explicit Nvml(Library library) : library_(std::move(library)) {
    int (*init)() = nullptr;
    find(init, "nvmlInit_v2");
    find(error_, "nvmlErrorString");
    find(shutdown_, "nvmlShutdown");
    find(count_, "nvmlDeviceGetCount_v2");
    find(device_, "nvmlDeviceGetHandleByIndex_v2");
    find(name_, "nvmlDeviceGetName");
    find(uuid_, "nvmlDeviceGetUUID");
    find(memory_, "nvmlDeviceGetMemoryInfo");
    find(processes_, "nvmlDeviceGetComputeRunningProcesses_v3");
    find(most_parts_, "nvmlDeviceGetMaxMigDeviceCount");
    find(part_, "nvmlDeviceGetMigDeviceHandleByIndex");
    const int result = init();
    ZERO_CHECK(result == kNvmlSuccess, "{}", error_(result));
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() { shutdown_(); }

  std::vector<GpuMemory> gpus() const {
    unsigned int count = 0;
    const int counted = count_(&count);
    ZERO_CHECK(counted == kNvmlSuccess, "the driver does not count them: {}", error_(counted));
    std::vector<GpuMemory> all;
    for (unsigned int i = 0; i < count; ++i) {
      NvmlDevice device = nullptr;
      const int seen = device_(i, &device);
      if (seen == kNvmlNoPermission) continue;  // it is not this process's to see
      if (seen != kNvmlSuccess) {
        all.push_back(
            {.index = static_cast<int>(i), .name = "?", .uuid = "?", .problem = error_(seen)});
        continue;
      }
      const std::size_t before = all.size();
      unsigned int most = 0;
      if (most_parts_(device, &most) != kNvmlSuccess) most = 0;
      for (unsigned int j = 0; j < most; ++j) {
        NvmlDevice part = nullptr;
        if (part_(device, j, &part) != kNvmlSuccess) continue;
        all.push_back(memory_of(part, i, static_cast<int>(j)));
      }
      if (all.size() == before) all.push_back(memory_of(device, i, GpuMemory::kWhole));
    }
    return all;
  }

 private:
  GpuMemory memory_of(NvmlDevice device, unsigned int index, int part) const {
    GpuMemory gpu{.index = static_cast<int>(index),
                  .part = part,
                  .name = text(name_, device),
                  .uuid = text(uuid_, device),
                  .processes = processes(device)};
    NvmlMemory memory{};
    const int result = memory_(device, &memory);
    if (result != kNvmlSuccess) {
      gpu.problem = error_(result);
      return gpu;
    }
    gpu.total = static_cast<std::int64_t>(memory.total);
    gpu.free = static_cast<std::int64_t>(memory.free);
    return gpu;
  }

  using Text = int (*)(NvmlDevice, char*, unsigned int);

  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library_.get(), name));
    ZERO_CHECK(function != nullptr,
               "the driver's library has no {}; install a driver of 2021 or later", name);
  }

  static std::string text(Text function, NvmlDevice device) {
    std::array<char, 128> text{};
    const bool known =
        function(device, text.data(), static_cast<unsigned int>(text.size())) == kNvmlSuccess;
    return known ? text.data() : "?";
  }

  std::map<int, std::int64_t> processes(NvmlDevice device) const {
    std::vector<NvmlProcess> found(16);
    int result = kNvmlInsufficientSize;
    unsigned int count = 0;
    for (int tries = 0; tries < 4 && result == kNvmlInsufficientSize; ++tries) {
      found.resize(2 * found.size());  // processes come and go meanwhile
      count = static_cast<unsigned int>(found.size());
      result = processes_(device, &count, found.data());
    }
    if (result != kNvmlSuccess) return {};
    std::map<int, std::int64_t> bytes;
    for (unsigned int i = 0; i < count; ++i) {
      const bool known = found[i].bytes <= std::numeric_limits<std::int64_t>::max();
      bytes[static_cast<int>(found[i].pid)] +=
          known ? static_cast<std::int64_t>(found[i].bytes) : 0;
    }
    return bytes;
  }

  Library library_;
  int (*shutdown_)() = nullptr;
  const char* (*error_)(int) = nullptr;
  int (*count_)(unsigned int*) = nullptr;
  int (*device_)(unsigned int, NvmlDevice*) = nullptr;
  int (*most_parts_)(NvmlDevice, unsigned int*) = nullptr;
  int (*part_)(NvmlDevice, unsigned int, NvmlDevice*) = nullptr;
  Text name_ = nullptr;
  Text uuid_ = nullptr;
  int (*memory_)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*processes_)(NvmlDevice, unsigned int*, NvmlProcess*) = nullptr;
};

}  // namespace

NvidiaMemory nvidia_memory(const char* library) {
  Library loaded(::dlopen(library, RTLD_NOW | RTLD_LOCAL));
  if (!loaded) return {};
  try {
    return {.gpus = Nvml(std::move(loaded)).gpus()};
  } catch (const Error& error) {
    return {.problem = error.what()};
  }
}

}  // namespace zero
