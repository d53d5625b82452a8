// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// What only a real GPU can show of CudaDevice.
#include <cuda_runtime_api.h>

#include <vector>

#include "tests/device/stream_contract.h"

namespace zero {
namespace {

INSTANTIATE_TEST_SUITE_P(
    OnAGpu, Streams, ::testing::ValuesIn(with_transfers({{"cuda", [] { return cuda::open(); }}})),
    [](const auto& each) { return each.param.name; });

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
// Streams, events and what else the driver may want for itself of a second device.
constexpr std::int64_t kOfTheDriver = 16 * kMiB;

std::int64_t free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_EQ(cudaSuccess, cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(free);
}

// Another program that takes or gives back memory meanwhile shows as a failure.
TEST(CudaMemory, TheDriverGivesWhatIsReservedAndNoMoreForBuffersInIt) {
  const auto first = cuda::open();  // with what the driver loads once
  first->compute().synchronize();
  const std::int64_t before = free_bytes();
  BytesByClass reserve{};
  reserve[static_cast<std::size_t>(MemoryClass::parameters)] = 310 * kMiB + 1000;
  reserve[static_cast<std::size_t>(MemoryClass::activations)] = 64 * kMiB;
  const auto device = cuda::open({.reserve = reserve});
  const std::int64_t reserved = before - free_bytes();
  std::vector<Buffer> buffers;
  for (int i = 0; i < 3; ++i) {
    buffers.push_back(
        device->allocate(100 * kMiB, DType::u8, MemoryClass::parameters, "a third of the block"));
  }
  buffers.push_back(device->allocate(64 * kMiB, DType::u8, MemoryClass::activations, "a block"));
  device->kernels().zero(device->compute(), buffers.back().view());
  device->compute().synchronize();
  const std::int64_t pages = DeviceBytes{.arenas = reserve}.in_pages();
  EXPECT_GE(reserved, pages);
  EXPECT_LE(before - free_bytes(), pages + kOfTheDriver);
  EXPECT_LE(device->device_bytes().in_pages(), pages);
}

}  // namespace
}  // namespace zero
