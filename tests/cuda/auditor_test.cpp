// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "device/cuda/check.h"
#include "device/cuda/handles.h"
#include "tests/cuda/emulator/dependences.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/emulator_kernels.h"

// What the auditor finds, and what it does not take for an order.
namespace zero::cuda {
namespace {

using emulated::Settings;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Auditor : public ::testing::Test {
 protected:
  Auditor() {
    emulated::reset({.order = Settings::Order::prompt, .recording = Settings::Recording::on});
    check(cudaMalloc(&memory_, 1024), "memory");
    check(cudaMallocHost(&pinned_, 1024), "pinned memory");
    for (StreamHandle& stream : streams_) {
      check(cudaStreamCreateWithPriority(stream.put(), cudaStreamNonBlocking, 0), "stream");
    }
    check(cudaEventCreateWithFlags(event_.put(), cudaEventDisableTiming), "event");
  }
  ~Auditor() override {
    for (StreamHandle& stream : streams_) {
      static_cast<void>(cudaStreamSynchronize(stream.get()));
      stream = {};
    }
    static_cast<void>(cudaFreeHost(pinned_));
    static_cast<void>(cudaFree(memory_));
    event_ = {};
    emulated::reset();
  }

  cudaStream_t first() const { return streams_[0].get(); }
  cudaStream_t second() const { return streams_[1].get(); }
  template <class T>
  T* memory() const {
    return static_cast<T*>(memory_);
  }
  int* pinned() const { return static_cast<int*>(pinned_); }

  void zero(std::ptrdiff_t begin, std::size_t bytes, cudaStream_t stream) const {
    check(cudaMemsetAsync(memory<char>() + begin, 0, bytes, stream), "zero");
  }
  static void copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "copy");
  }
  void record() const { check(cudaEventRecord(event_.get(), first()), "record"); }
  void wait() const { check(cudaStreamWaitEvent(second(), event_.get(), 0), "wait"); }

  static std::vector<std::string> found() {
    const emulated::WorkGraph graph = emulated::graph();
    std::vector<std::string> texts;
    for (const emulated::Dependence& one :
         unordered(graph, emulated::Clocks(graph), dependences(graph))) {
      texts.push_back(describe(graph, one));
    }
    return texts;
  }
  static emulated::WaitUses uses() {
    const emulated::WorkGraph graph = emulated::graph();
    return wait_uses(graph, dependences(graph));
  }

  void* memory_ = nullptr;
  void* pinned_ = nullptr;
  std::vector<StreamHandle> streams_{2};
  EventHandle event_;
};

TEST_F(Auditor, FindsBytesThatTwoStreamsTouchInNoOrder) {
  zero(100, 20, first());
  zero(119, 20, second());
  EXPECT_THAT(found(), ElementsAre(AllOf(
                           HasSubstr("\"memset\" (number 1 of the host's stream 1 (priority 0)) "
                                     "writes and \"memset\" (number 1 of the host's stream 2 "
                                     "(priority 0)) writes bytes 119 to 120 of the host's"),
                           HasSubstr("device memory of 1024 bytes; nothing orders them"))));
}

TEST_F(Auditor, TakesNeighboursForWhatTheyAre) {
  zero(100, 20, first());
  zero(120, 20, second());
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Auditor, SeesTheElementsThatKernelsTouch) {
  set_every_other(memory<std::uint16_t>(), 40, first());
  set_every_other(memory<std::uint16_t>() + 1, 40, second());
  EXPECT_THAT(found(), IsEmpty());
  set_every_other(memory<std::uint16_t>() + 2, 40, second());
  EXPECT_THAT(found(), ElementsAre(HasSubstr(" writes bytes 4 to 6 of ")));
}

TEST_F(Auditor, SeesAtomicsAndWords) {
  zero(0, 1024, first());
  record();
  wait();
  count_threads(memory<std::int32_t>(), 1, first());
  count_threads(memory<std::int32_t>(), 1, second());
  EXPECT_THAT(found(), ElementsAre(HasSubstr("\"count_threads\"")));
}

TEST_F(Auditor, TakesReadersOfOneValueForNoConflict) {
  zero(0, 1024, first());
  record();
  wait();
  copy(pinned(), memory<char>(), 512, first());
  copy(pinned() + 128, memory<char>(), 512, second());
  EXPECT_THAT(found(), IsEmpty());
  zero(0, 4, first());  // while the second stream may be reading
  EXPECT_THAT(found(), ElementsAre(AllOf(HasSubstr("reads and \"memset\""),
                                         HasSubstr("writes bytes 0 to 4 of"))));
}

TEST_F(Auditor, AnEventOrdersWhatCameBeforeItsRecord) {
  zero(0, 20, first());
  record();
  zero(40, 20, first());
  wait();
  zero(0, 20, second());
  EXPECT_THAT(found(), IsEmpty());
  zero(40, 20, second());
  EXPECT_THAT(found(), SizeIs(1));
}

TEST_F(Auditor, AWaitIsForTheRecordThatWasTheLatest) {
  record();
  wait();
  zero(0, 20, first());
  record();
  zero(0, 20, second());
  EXPECT_THAT(found(), SizeIs(1));
}

TEST_F(Auditor, HostCodeIsOrderedBySynchronizing) {
  pinned()[0] = 1;
  copy(memory<char>(), pinned(), 4, first());
  check(cudaStreamSynchronize(first()), "synchronize");
  pinned()[0] = 2;
  EXPECT_THAT(found(), IsEmpty());
  copy(memory<char>(), pinned(), 4, first());
  pinned()[0] = 3;
  copy(memory<char>() + 8, pinned() + 2, 4, first());  // a call, by which it is noted
  EXPECT_THAT(found(),
              ElementsAre(AllOf(HasSubstr("\"memcpy\""), HasSubstr("reads and \"host code\""),
                                HasSubstr("of the host) writes bytes 0 to 4 of the "
                                          "host's pinned memory of 1024 bytes"))));
}

TEST_F(Auditor, SeesHostFunctionsAndCopiesOfFixedSizes) {
  zero(0, 1024, first());
  copy(pinned(), memory<char>(), 512, first());
  const auto read = [](void* data) {
    std::array<int, 34> values{};
    std::copy_n(static_cast<const int*>(data), values.size(), values.begin());
    static_cast<int*>(data)[200] = values[0] + values[33];
  };
  check(cudaLaunchHostFunc(second(), read, pinned()), "host function");
  EXPECT_THAT(found(), ElementsAre(HasSubstr("\"host function\" (number 1 of the host's stream 2 "
                                             "(priority 0)) reads bytes 0 to 136 of")));
}

TEST_F(Auditor, OnlyTheThreadThatWaitedKnows) {
  zero(0, 20, first());
  check(cudaStreamSynchronize(first()), "synchronize");
  std::thread([this] { zero(0, 20, second()); }).join();
  EXPECT_THAT(found(), SizeIs(1));
  zero(0, 20, first());
  EXPECT_THAT(found(), SizeIs(2));
}

TEST_F(Auditor, AnEventIsCompleteForThoseWhoKnow) {
  zero(0, 20, first());
  record();
  EXPECT_THAT(emulated::run_order(), SizeIs(2));  // it has run
  EXPECT_EQ(cudaErrorNotReady, cudaEventQuery(event_.get()));
  EXPECT_EQ(cudaErrorNotReady, cudaStreamQuery(first()));
  wait();
  check(cudaStreamSynchronize(second()), "synchronize");
  EXPECT_EQ(cudaSuccess, cudaEventQuery(event_.get()));
  zero(40, 20, first());
  EXPECT_EQ(cudaErrorNotReady, cudaStreamQuery(first()));
}

TEST_F(Auditor, MemoryIsGivenBackWhenNothingUsesIt) {
  void* other = nullptr;
  check(cudaMallocHost(&other, 16), "pinned memory");
  copy(memory<char>(), other, 16, first());
  check(cudaFreeHost(other), "free");
  EXPECT_THAT(found(), ElementsAre(HasSubstr("reads and \"cudaFreeHost\"")));
}

TEST_F(Auditor, FindsReadsOfWhatNothingHasWritten) {
  zero(0, 512, first());
  copy(pinned(), memory<char>() + 500, 20, first());
  const emulated::WorkGraph graph = emulated::graph();
  const auto reads = emulated::unwritten(graph);
  ASSERT_THAT(reads, SizeIs(1));
  EXPECT_THAT(describe(graph, reads.front()),
              AllOf(HasSubstr("\"memcpy\" (number 2 of "), HasSubstr("reads bytes 512 to 520 of "),
                    HasSubstr(", which nothing has written")));
}

TEST_F(Auditor, TellsWhatWaitsAreGoodFor) {
  zero(0, 20, first());
  record();
  wait();
  wait();  // says what the one before said
  zero(100, 20, first());
  record();
  wait();
  zero(200, 20, second());  // nobody else's
  EXPECT_THAT(uses().needed, IsEmpty());
  EXPECT_THAT(uses().implied, SizeIs(2));
  EXPECT_THAT(uses().idle, SizeIs(1));
  zero(100, 20, second());
  EXPECT_THAT(uses().needed, SizeIs(1));
  EXPECT_THAT(uses().idle, IsEmpty());
}

}  // namespace
}  // namespace zero::cuda
