// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/nccl/fake_stream.h"

#include <cstdlib>
#include <cstring>

// On the host: everything happens at once.
namespace zero::test::fake_nccl {

void put(cudaStream_t, const std::string&, const Touched&, std::function<void()> work) { work(); }

Point record(cudaStream_t) { return nullptr; }
void wait(cudaStream_t, const Point&) {}

void* allocate(std::size_t bytes) {
  void* const memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  std::memset(memory, 0x7f, bytes);
  return memory;
}

void release(void* memory) { std::free(memory); }

}  // namespace zero::test::fake_nccl
