// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/cpu/memory.h"
#include "device/cpu/primitives.h"
#include "device/device.h"

namespace zero::testing {

/// A device in host memory, of one thread, whose streams are all a test's own.
template <typename OwnStream>
class HostDevice : public Device {
 public:
  /// `arguments`: of each stream.
  template <typename... Arguments>
  explicit HostDevice(Arguments&... arguments)
      : compute_(arguments...),
        communication_(arguments...),
        transfer_(arguments...),
        kernels_(compute_, 1) {}

  std::string_view name() const override { return "cpu"; }
  bool has_memory() const override { return true; }
  int threads() const override { return 1; }
  OwnStream& compute() override { return compute_; }
  OwnStream& communication() override { return communication_; }
  OwnStream& transfer() override { return transfer_; }
  Kernels& kernels() override { return kernels_; }
  std::string bits() const override { return "a test's"; }

 protected:
  void* allocate_bytes(std::int64_t bytes, MemoryClass /*memory_class*/) override {
    return cpu::allocate_memory(bytes);
  }
  void free_bytes(void* data, std::int64_t bytes, MemoryClass /*memory_class*/) noexcept override {
    cpu::free_memory(data, bytes);
  }

 private:
  OwnStream compute_;
  OwnStream communication_;
  OwnStream transfer_;
  cpu::CpuKernels kernels_;
};

}  // namespace zero::testing
