// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <utility>

#include "base/error.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/emulator/tracker.h"
#include "tests/nccl/fake_stream.h"

// What the fake of NCCL works on where GPUs are emulated: their memory and their streams.
namespace zero::test::fake_nccl {
namespace {

void check(cudaError_t status, const char* what) {
  ZERO_CHECK(status == cudaSuccess, "the emulator refuses the fake of NCCL {}", what);
}

}  // namespace

void put(cudaStream_t stream, const std::string& name, const Touched& touched,
         std::function<void()> work) {
  namespace emulated = cuda::emulated;
  const auto access =
      touched.how == Touched::How::read ? emulated::Access::read : emulated::Access::write;
  check(emulated::enqueue(stream, name,
                          [touched, access, work = std::move(work)] {
                            emulated::touch(touched.data, touched.bytes, access);
                            work();
                          }),
        "work");
}

Point record(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
  const Point point(event, [](cudaEvent_t each) { cudaEventDestroy(each); });
  check(cudaEventRecord(event, stream), "a point");
  return point;
}

void wait(cudaStream_t stream, const Point& point) {
  check(cudaStreamWaitEvent(stream, static_cast<cudaEvent_t>(point.get()), 0), "a wait");
}

void* allocate(std::size_t bytes) {
  constexpr std::size_t kPage = std::size_t{2}
                                << 20;  // of the driver, which NCCL asks for whole ones
  void* memory = nullptr;
  check(cudaMalloc(&memory, (bytes + kPage - 1) / kPage * kPage), "memory");
  return memory;
}

void release(void* memory) { cudaFree(memory); }

}  // namespace zero::test::fake_nccl
