// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulator/emulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda/check.h"
#include "device/cuda/handles.h"
#include "tests/cuda/emulator_kernels.h"
#include "tests/errors.h"

namespace zero::cuda {
namespace {

using emulated::Item;
using ::testing::HasSubstr;

void free_memory(void* data) { cudaFree(data); }
using Memory = Handle<void*, free_memory>;

class Emulator : public ::testing::Test {
 protected:
  Emulator() { restart({}); }
  ~Emulator() override {
    streams_.clear();
    events_.clear();
    memory_.clear();
    emulated::reset();
  }

  void restart(const emulated::Settings& settings) {
    streams_.clear();
    emulated::reset(settings);
  }
  cudaStream_t stream() {
    streams_.emplace_back();
    check(cudaStreamCreateWithPriority(streams_.back().put(), cudaStreamNonBlocking, 0), "stream");
    return streams_.back().get();
  }
  cudaEvent_t event() {
    events_.emplace_back();
    check(cudaEventCreateWithFlags(events_.back().put(), cudaEventDisableTiming), "event");
    return events_.back().get();
  }
  template <class T>
  T* allocate(std::size_t count) {
    memory_.emplace_back();
    check(cudaMalloc(memory_.back().put(), count * sizeof(T)), "memory");
    return static_cast<T*>(memory_.back().get());
  }
  static void copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "copy");
  }
  template <class T>
  static std::vector<T> fetch(const T* from, std::size_t count, cudaStream_t stream) {
    std::vector<T> values(count);
    copy(values.data(), from, count * sizeof(T), stream);
    check(cudaStreamSynchronize(stream), "fetch");
    return values;
  }

  std::vector<StreamHandle> streams_;
  std::vector<EventHandle> events_;
  std::vector<Memory> memory_;
};

TEST_F(Emulator, RunsBlocksWithBarriersAndShuffles) {
  const cudaStream_t s = stream();
  std::vector<float> values(5 * 256);
  std::iota(values.begin(), values.end(), 0.0F);
  auto* const from = allocate<float>(values.size());
  auto* const to = allocate<float>(5);
  copy(from, values.data(), values.size() * sizeof(float), s);
  block_sums(from, to, 5, s);
  const std::vector<float> sums = fetch(to, 5, s);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(256 * i),
                              values.begin() + static_cast<std::ptrdiff_t>(256 * (i + 1)), 0.0F),
              sums[i]);
  }
}

TEST_F(Emulator, AMissingBarrierShows) {
  const cudaStream_t s = stream();
  const std::vector<float> ones(256, 1.0F);
  auto* const from = allocate<float>(256);
  auto* const to = allocate<float>(1);
  copy(from, ones.data(), 1024, s);
  block_sums_without_barrier(from, to, 1, s);
  EXPECT_NE(256.0F, fetch(to, 1, s).front());
}

TEST_F(Emulator, CountsWithAtomicsAndDynamicSharedMemory) {
  const cudaStream_t s = stream();
  auto* const counter = allocate<std::int32_t>(1);
  check(cudaMemsetAsync(counter, 0, sizeof *counter, s), "zero");
  count_threads(counter, 7, s);
  EXPECT_EQ(7 * 64, fetch(counter, 1, s).front());
}

TEST_F(Emulator, NamesBarriersThatNotAllThreadsMeet) {
  const cudaStream_t s = stream();
  diverge(s);
  const std::string message = error_of([&] { check(cudaStreamSynchronize(s), "synchronize"); });
  EXPECT_THAT(message, HasSubstr("kernel diverge, block (0, 0, 0): a barrier or shuffle at "));
  EXPECT_THAT(message, HasSubstr("some threads have ended before"));
  EXPECT_THAT(message, HasSubstr("the error is sticky"));
  EXPECT_EQ(cudaErrorLaunchFailure, cudaStreamQuery(s));
}

TEST_F(Emulator, NamesShufflesThatNotAllOfAWarpMeet) {
  const cudaStream_t s = stream();
  diverge_in_warps(s);
  EXPECT_THAT(error_of([&] { check(cudaStreamSynchronize(s), "synchronize"); }),
              HasSubstr("kernel diverge_in_warps, block (0, 0, 0): a barrier or shuffle at "));
}

using EmulatorDeathTest = Emulator;

TEST_F(EmulatorDeathTest, HostCodeCannotTouchDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  volatile float* const memory = allocate<float>(4);
  EXPECT_DEATH(static_cast<void>(memory[0]), "");
}

TEST_F(Emulator, LazyStreamsRunWhatASynchronizeNeedsAndNoMore) {
  const cudaStream_t first = stream();
  const cudaStream_t second = stream();
  const cudaEvent_t point = event();
  auto* const memory = allocate<float>(4);
  check(cudaMemsetAsync(memory, 0, 4, first), "");       // 0
  check(cudaEventRecord(point, first), "");              // 1
  check(cudaMemsetAsync(memory + 1, 0, 4, first), "");   // 2
  check(cudaMemsetAsync(memory + 2, 0, 4, second), "");  // 3
  check(cudaStreamWaitEvent(second, point, 0), "");      // 4
  EXPECT_EQ(cudaErrorNotReady, cudaEventQuery(point));
  EXPECT_TRUE(emulated::run_order().empty());
  check(cudaStreamSynchronize(second), "");
  EXPECT_EQ((std::vector<std::int64_t>{3, 0, 1, 4}), emulated::run_order());
  EXPECT_EQ(cudaSuccess, cudaEventQuery(point));
  check(cudaStreamSynchronize(first), "");
  EXPECT_EQ((std::vector<std::int64_t>{3, 0, 1, 4, 2}), emulated::run_order());
}

TEST_F(Emulator, SeededStreamsRunInManyOrdersAndKeepWaits) {
  std::vector<std::vector<std::int64_t>> orders;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    restart({.order = emulated::Settings::Order::seeded, .seed = seed});
    const cudaStream_t first = stream();
    const cudaStream_t second = stream();
    const cudaEvent_t point = event();
    auto* const memory = allocate<float>(4);
    check(cudaMemsetAsync(memory, 0, 4, first), "");
    check(cudaMemsetAsync(memory + 2, 0, 4, second), "");
    check(cudaEventRecord(point, first), "");
    check(cudaStreamWaitEvent(second, point, 0), "");
    check(cudaMemsetAsync(memory + 1, 0, 4, first), "");
    check(cudaStreamSynchronize(second), "");
    check(cudaStreamSynchronize(first), "");
    orders.push_back(emulated::run_order());
    const auto place = [&](std::int64_t item) { return std::ranges::find(orders.back(), item); };
    EXPECT_LT(place(2), place(3));
    EXPECT_EQ(5U, orders.back().size());
    events_.clear();
    memory_.clear();
  }
  std::ranges::sort(orders);
  EXPECT_NE(orders.front(), orders.back());
}

TEST_F(Emulator, WorkMayWaitForWorkOfAnotherThread) {
  const cudaStream_t here = stream();
  const cudaStream_t there = stream();
  int arrived = 0;
  const auto meet = [&](cudaStream_t s) {
    check(emulated::enqueue(s, "note", [&] { ++arrived; }), "");
    check(emulated::enqueue(
              s, "meet", [] {}, [&] { return arrived == 2; }),
          "");
    check(cudaStreamSynchronize(s), "");
  };
  std::thread other([&] { meet(there); });
  meet(here);
  other.join();
  EXPECT_EQ(2, arrived);
}

cudaGraphExec_t instantiate(cudaGraph_t graph) {
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  return executable;
}

TEST_F(Emulator, CapturedWorkRunsWhenItsGraphIsLaunched) {
  const cudaStream_t s = stream();
  auto* const counter = allocate<std::int32_t>(1);
  check(cudaMemsetAsync(counter, 0, sizeof *counter, s), "zero");
  check(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "begin");
  count_threads(counter, 7, s);
  count_threads(counter, 1, s);
  GraphHandle graph;
  check(cudaStreamEndCapture(s, graph.put()), "end");
  EXPECT_EQ(0, fetch(counter, 1, s).front());
  std::size_t nodes = 0;
  check(cudaGraphGetNodes(graph.get(), nullptr, &nodes), "nodes");
  EXPECT_EQ(2U, nodes);
  {
    const GraphExecHandle executable(instantiate(graph.get()));
    graph = {};
    check(cudaGraphUpload(executable.get(), s), "upload");
    for (int i = 0; i < 3; ++i) check(cudaGraphLaunch(executable.get(), s), "launch");
  }
  EXPECT_EQ(3 * 8 * 64, fetch(counter, 1, s).front());  // queued before the graph was destroyed
  EXPECT_EQ(7U, std::ranges::count(emulated::log(), Item::Kind::work, &Item::kind) - 2);
  EXPECT_EQ(3, emulated::calls("cudaGraphLaunch"));
  EXPECT_EQ(2, emulated::calls("cudaLaunchKernel"));
}

// As CUDA; of records it lets a capture have some, which the project does not use.
TEST_F(Emulator, ACaptureEndsInvalidByWhatCudaDoesNotCapture) {
  const cudaStream_t s = stream();
  const cudaStream_t other = stream();
  const cudaEvent_t point = event();
  check(cudaEventRecord(point, other), "record");
  auto* const memory = allocate<float>(1);
  void* data = nullptr;
  const std::vector<std::pair<const char*, std::function<cudaError_t()>>> calls{
      {"synchronize", [&] { return cudaStreamSynchronize(s); }},
      {"query", [&] { return cudaStreamQuery(s); }},
      {"record", [&] { return cudaEventRecord(point, s); }},
      {"wait", [&] { return cudaStreamWaitEvent(s, point, 0); }},
      {"event query", [&] { return cudaEventQuery(point); }},
      {"allocate", [&] { return cudaMalloc(&data, 4); }},
      {"release", [&] { return cudaFree(memory); }},
      {"synchronize the device", [&] { return cudaDeviceSynchronize(); }},
      {"meet",
       [&] {
         return emulated::enqueue(
             s, "x", [] {}, [] { return true; });
       }},
  };
  for (const auto& [what, call] : calls) {
    check(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "begin");
    const cudaError_t status = call();
    EXPECT_TRUE(status == cudaErrorStreamCaptureUnsupported ||
                status == cudaErrorStreamCaptureIsolation)
        << what << ": " << status;
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &graph)) << what;
    EXPECT_EQ(nullptr, graph);
  }
  EXPECT_EQ(cudaErrorInvalidValue, cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  check(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "begin");
  // Another thread's calls, and other streams, are no matter of the capture's.
  std::thread([&] { EXPECT_EQ(cudaErrorNotReady, cudaEventQuery(point)); }).join();
  check(cudaStreamSynchronize(other), "synchronize");
  GraphHandle graph;
  check(cudaStreamEndCapture(s, graph.put()), "end");
  EXPECT_EQ(cudaErrorIllegalState, cudaStreamEndCapture(s, GraphHandle().put()));
}

TEST_F(Emulator, FailsOnDemandAndChecksCopies) {
  emulated::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
  void* data = nullptr;
  EXPECT_EQ(cudaErrorMemoryAllocation, cudaMalloc(&data, 4));
  const cudaStream_t s = stream();
  auto* const memory = allocate<float>(4);
  std::vector<float> host(5);
  EXPECT_EQ(cudaErrorInvalidValue, cudaMemcpyAsync(memory, host.data(), 20, cudaMemcpyDefault, s));
  EXPECT_EQ(cudaErrorInvalidValue, cudaMemsetAsync(memory + 1, 0, 16, s));
  EXPECT_EQ(cudaErrorInvalidResourceHandle, cudaMemsetAsync(memory, 0, 16, nullptr));
  EXPECT_THAT(error_of([] { emulated::reset(); }),
              HasSubstr("1 streams, 0 events, 1 allocations and 0 graphs are left over"));
}

}  // namespace
}  // namespace zero::cuda
