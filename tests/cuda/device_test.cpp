// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/cgroup.h"
#include "device/cuda/capacity.h"
#include "device/cuda/check.h"
#include "device/cuda/gpus.h"
#include "device/cuda/stream.h"
#include "tests/cuda/case.h"
#include "tests/device/stream_contract.h"
#include "tests/errors.h"

namespace zero {
namespace {

std::vector<DeviceCase> emulated_devices() {
  using cuda::emulated::Settings;
  const auto open = [](const Settings& settings) {
    cuda::emulated::reset(settings);
    return cuda::open();
  };
  std::vector<DeviceCase> cases{{"cuda_lazy", [=] { return open({}); }}};
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    cases.push_back({"cuda_seeded" + std::to_string(seed),
                     [=] { return open({.order = Settings::Order::seeded, .seed = seed}); }});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(OnAnEmulatedGpu, Streams,
                         ::testing::ValuesIn(with_transfers(emulated_devices())),
                         [](const auto& each) { return each.param.name; });

}  // namespace

namespace cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CudaDevice : public EmulatedDevice {};

TEST_F(CudaDevice, IsNamedAndChosenByIndexOrUuid) {
  EXPECT_EQ("cuda:0", device_->name());
  EXPECT_TRUE(device_->has_memory());
  EXPECT_TRUE(device_->compute().enqueues());
  EXPECT_TRUE(device_->compute().captures());
  restart({.devices = 3});
  EXPECT_EQ("cuda:2", open({.index = 2})->name());
  EXPECT_EQ("cuda:1", open({.uuid = "GPU-02020202-0202-0202-0202-020202020202"})->name());
  EXPECT_EQ(
      "cuda: device 3 was asked for, 3 are visible; start no more ranks on a host than it has "
      "GPUs, or choose with CUDA_VISIBLE_DEVICES",
      error_of([] { open({.index = 3}); }));
  EXPECT_EQ(
      "cuda: no visible device is GPU-7; there are: GPU-01010101-0101-0101-0101-010101010101, "
      "GPU-02020202-0202-0202-0202-020202020202, GPU-03030303-0303-0303-0303-030303030303",
      error_of([] { open({.uuid = "GPU-7"}); }));
}

TEST_F(CudaDevice, OfARankIsItsNumberUnlessItsProcessSeesOneAlone) {
  EXPECT_EQ(index_of_rank(0), 0);
  EXPECT_EQ(index_of_rank(3), 0);
  restart({.devices = 2});
  EXPECT_EQ(index_of_rank(1), 1);
  EXPECT_NE(uuid_of(0), uuid_of(1));
  EXPECT_EQ(open({.uuid = uuid_of(1)})->name(), "cuda:1");
  EXPECT_THAT(error_of([] { index_of_rank(2); }),
              AllOf(HasSubstr("rank 2 of its host"), HasSubstr("sees 2 GPUs")));
}

TEST_F(CudaDevice, SaysWhatTheMachineLacks) {
  close();
  emulated::reset({.devices = 0});
  EXPECT_EQ(
      "cuda: the driver shows no GPU (CUDA_VISIBLE_DEVICES may hide them); use a CPU device or a "
      "machine with a GPU",
      error_of([] { open(); }));
  emulated::reset({.driver_version = 12040});
  EXPECT_EQ(
      "cuda: the NVIDIA driver is too old: it takes CUDA 12.4, this program was built with 13.0; "
      "install a newer driver",
      error_of([] { open(); }));
  emulated::reset({.driver_version = 0});
  EXPECT_EQ(
      "cuda: there is no NVIDIA driver here, and device \"cuda\" needs one; use a CPU device or a "
      "machine with a GPU",
      error_of([] { open(); }));
}

TEST_F(CudaDevice, IsRefusedIfTheBuildHasNoCodeForIt) {
  close();
  emulated::reset({.capability = 80});
  EXPECT_EQ(
      "cuda: this build has code for 90a-real and none for GPU 0, Emulated GPU of compute "
      "capability 8.0; configure with -DZERO_CUDA_ARCHITECTURES=80-real, or use a CPU device",
      error_of([] { open(); }));
  EXPECT_TRUE(missing_code(0).has_value());
  EXPECT_FALSE(missing_code(1).has_value()) << "there is no such GPU";
  emulated::reset({.capability = 100});
  EXPECT_THAT(error_of([] { open(); }), HasSubstr("-DZERO_CUDA_ARCHITECTURES=100-real"));
  emulated::reset();
  EXPECT_FALSE(missing_code(0).has_value());
}

TEST_F(CudaDevice, NamesTheOptionIfTheBuildHasNoCodeForAGpu) {
  EXPECT_THAT(error_of([] { check(cudaErrorNoKernelImageForDevice, "fill"); }),
              AllOf(StartsWith("cuda: fill: "), HasSubstr("this build has no code for this GPU"),
                    HasSubstr("-DZERO_CUDA_ARCHITECTURES=native")));
}

TEST_F(CudaDevice, CutsSmallBuffersOutOfChunksAndReusesThem) {
  const std::int64_t before = emulated::allocations();
  std::vector<std::uintptr_t> addresses;
  for (int round = 0; round < 3; ++round) {
    for (const std::int64_t count : {1, 100, 1000, 5000}) {
      const View view = allocate(count, DType::fp32);
      addresses.push_back(reinterpret_cast<std::uintptr_t>(view.data()));
      EXPECT_EQ(0U, addresses.back() % 256);
      EXPECT_EQ(device_.get(), view.device());
    }
    buffers_.clear();
  }
  EXPECT_EQ(before + 1, emulated::allocations());
  EXPECT_EQ(addresses[0], addresses[4]);
  EXPECT_EQ(addresses[3], addresses[11]);
  allocate(1 << 20, DType::fp32);
  EXPECT_EQ(before + 2, emulated::allocations());
}

BytesByClass bytes_of_class(MemoryClass memory_class, std::int64_t bytes) {
  BytesByClass all{};
  all[static_cast<std::size_t>(memory_class)] = bytes;
  return all;
}

TEST_F(CudaDevice, TakesWhatIsReservedAtOnceAndNoMoreForIt) {
  close();
  emulated::reset();
  const auto reserve = bytes_of_class(MemoryClass::optimizer, (5 << 20) + 256);
  const auto device = open({.reserve = reserve});
  const std::size_t opened = emulated::requests().size();
  EXPECT_EQ(2U, opened);  // and the kernels' scratch, which nobody had planned
  {
    const Buffer large =
        device->allocate(5 << 18, DType::fp32, MemoryClass::optimizer, "master values");
    const Buffer small = device->allocate(3, DType::fp32, MemoryClass::optimizer, "moments");
    EXPECT_EQ(static_cast<std::byte*>(large.view().data()) + (5 << 20), small.view().data());
    EXPECT_EQ(opened, emulated::requests().size());
    EXPECT_EQ(reserve[3], device->device_bytes().arenas[3]);
  }
  const Buffer again = device->allocate(1, DType::u8, MemoryClass::optimizer, "moments");
  EXPECT_EQ(reserve[3], device->device_bytes().arenas[3]);
}

TEST_F(CudaDevice, WhatItsBlockCannotHoldIsTakenAndShown) {
  close();
  emulated::reset();
  const auto device = open({.reserve = bytes_of_class(MemoryClass::gathered, 2 << 20)});
  const std::size_t opened = emulated::requests().size();
  const Buffer small = device->allocate(100, DType::u8, MemoryClass::gathered, "in the block");
  const Buffer large = device->allocate(3 << 20, DType::u8, MemoryClass::gathered, "beside it");
  EXPECT_EQ(opened + 1, emulated::requests().size());
  EXPECT_EQ(256 + (4 << 20), device->device_bytes().arenas[1]);
}

TEST_F(CudaDevice, SaysWhatThereIsNoRoomFor) {
  close();
  emulated::reset({.memory = 24 << 20});
  auto reserve = bytes_of_class(MemoryClass::parameters, 9 << 20);
  reserve[static_cast<std::size_t>(MemoryClass::optimizer)] = 20 << 20;
  EXPECT_EQ(
      "device cuda:0: out of memory before the first step: the run needs (bytes) parameters "
      "9437184, optimizer 20971520, and there is no room for its optimizer: 14680064 of the GPU's "
      "25165824 are free; use more ranks, a higher stage or a smaller micro-batch",
      error_of([&] { open({.reserve = reserve}); }));
}

TEST_F(CudaDevice, OutOfMemoryShowsTheLedgerAndTheDriversView) {
  restart({.memory = 24 << 20});
  const Buffer kept =
      device_->allocate(3 << 20, DType::fp32, MemoryClass::optimizer, "master values");
  const std::string message =
      error_of([&] { device_->allocate(4 << 20, DType::fp32, MemoryClass::gathered, "window 0"); });
  EXPECT_THAT(message,
              AllOf(StartsWith("device cuda:0: out of memory: 16777216 bytes for gathered/window "
                               "0, while its buffers hold (bytes): optimizer 12582912, "
                               "communication 1088, staging 8388608; 14680064 "
                               "bytes taken from the driver for them, "),
                    HasSubstr(" of the GPU's 25165824 free; use more ranks, a higher stage")));
  emulated::fail_next("cudaMallocHost", cudaErrorMemoryAllocation);
  EXPECT_THAT(error_of([&] {
                device_->allocate_host(1 << 20, DType::u8, MemoryClass::staging, "batches");
              }),
              StartsWith("device cuda:0: out of host memory: 1048576 bytes for staging/batches"));
}

TEST_F(CudaDevice, KnowsTheGpusMemoryAndWhatItHasTakenOfIt) {
  close();
  emulated::reset({.memory = 64 << 20});
  const auto device = open({.reserve = bytes_of_class(MemoryClass::optimizer, 5 << 20)});
  // Taken of the driver: the block of 5 MiB in pages of 2 MiB, and a page for the kernels' scratch.
  const std::int64_t block = 6 << 20;
  const std::int64_t page = 2 << 20;
  EXPECT_EQ(64 << 20, device->capacity().total);
  EXPECT_EQ((64 << 20) - block - page, device->capacity().free);
  const std::int64_t of_host = 2 * 272 + (8 << 20);  // copies of the norms' limbs, pieces
  EXPECT_EQ(block + page + of_host, device->reserved_bytes());
  const Buffer inside = device->allocate(3 << 20, DType::u8, MemoryClass::optimizer, "moments");
  EXPECT_EQ(block + page + of_host, device->reserved_bytes()) << "in its block";
  {
    const Buffer outside = device->allocate(3 << 20, DType::u8, MemoryClass::gathered, "window");
    EXPECT_EQ(block + page + of_host + (4 << 20), device->reserved_bytes());
    EXPECT_EQ((64 << 20) - block - page - (3 << 20), device->capacity().free)
        << "the emulator has no pages";
    EXPECT_GE(device->reserved_bytes(), device->ledger().snapshot().total);
  }
  EXPECT_EQ(block + page + of_host, device->reserved_bytes());
}

// As Jetson and GB10: their driver counts files that the kernel keeps in memory as taken.
TEST_F(CudaDevice, ThatSharesTheHostsMemoryHasFreeWhatTheHostHas) {
  constexpr std::int64_t kMore = std::int64_t{1} << 50;  // than any host has
  restart({.memory = kMore, .memory_is = emulated::Settings::Memory::hosts});
  EXPECT_EQ(device_->capacity().total, kMore);
  EXPECT_GT(device_->capacity().free, 0);
  EXPECT_LE(device_->capacity().free, total_memory().value());
  restart({.memory = 24 << 20, .memory_is = emulated::Settings::Memory::hosts});
  EXPECT_LE(device_->capacity().free, 24 << 20);
  restart({.memory = kMore});
  EXPECT_GT(device_->capacity().free, kMore / 2);
}

TEST_F(CudaDevice, WithoutRoomForKernelsDoesNotTakeAnotherWay) {
  restart({.memory = 128 << 20});
  EXPECT_NO_THROW(require_room_for_kernels("a product"));
  const Buffer most = device_->allocate(100 << 20, DType::u8, MemoryClass::optimizer, "moments");
  EXPECT_THAT(error_of([] { require_room_for_kernels("a product"); }),
              AllOf(StartsWith("cuda: there is no kernel for a product while "),
                    HasSubstr(fmt::format("{} of the GPU's 134217728 bytes are free",
                                          device_->capacity().free)),
                    HasSubstr("expected at least 67108864 bytes"), HasSubstr("run.memory_limit")));
}

TEST_F(CudaDevice, OfAnyNumberTellsItsMemoryWithoutBeingOpened) {
  close();
  emulated::reset({.devices = 2, .memory = 64 << 20, .last_capability = 80});
  const auto first = open({.index = 0});
  const Buffer taken = first->allocate(8 << 20, DType::u8, MemoryClass::optimizer, "moments");
  EXPECT_EQ(capacity_of(0).free, first->capacity().free);
  EXPECT_EQ(capacity_of(1).free, 64 << 20) << "the build has no code for it";
  EXPECT_THAT(error_of([] { capacity_of(2); }), HasSubstr("device 2 was asked for"));
}

TEST_F(CudaDevice, PinnedMemoryIsTheHosts) {
  const Buffer buffer = device_->allocate_host(8, DType::fp32, MemoryClass::staging, "batch");
  EXPECT_EQ(nullptr, buffer.view().device());
  buffer.view().as<float>()[7] = 3.0F;
  EXPECT_EQ(32, device_->ledger().snapshot().labels.at("staging/batch"));
}

TEST_F(CudaDevice, CopiesBothWaysBehindTheStreamsWork) {
  std::vector<std::int64_t> values(1000);
  std::iota(values.begin(), values.end(), 3);
  const View there = upload(View::of(std::span(values)), 1);
  EXPECT_EQ(bytes_of(View::of(std::span(values))), download(there));
}

TEST_F(CudaDevice, AForgottenWaitGivesWrongValues) {
  std::vector<float> values(64, 2.0F);
  const auto moved = [&](bool waits) {
    const View there = allocate(64, DType::fp32);
    device_->kernels().poison(device_->compute(), there);
    device_->compute().synchronize();
    device_->kernels().convert(device_->communication(), View::of(std::span(values)), there);
    if (waits) device_->compute().wait(device_->communication().record());
    auto found = download(there);
    device_->communication().synchronize();
    return found;
  };
  EXPECT_EQ(bytes_of(View::of(std::span(values))), moved(true));
  EXPECT_NE(bytes_of(View::of(std::span(values))), moved(false));
}

TEST_F(CudaDevice, CountsTheTimeOfWaitsThatHadToWait) {
  device_->compute().wait(device_->communication().record());
  EXPECT_EQ(0.0, device_->compute().waited_seconds());
  device_->communication().submit_host(
      "slow", [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  const Event slow = device_->communication().record();
  device_->compute().wait(slow);
  EXPECT_EQ(0.0, device_->compute().waited_seconds());  // nothing has run yet
  device_->compute().synchronize();
  const double waited = device_->compute().waited_seconds();
  EXPECT_GE(waited, 0.005);
  device_->compute().wait(slow);
  device_->compute().synchronize();
  EXPECT_EQ(waited, device_->compute().waited_seconds());
}

// They end long after wait() has returned.
TEST_F(CudaDevice, CountsSomeWaitsOnAMeterToo) {
  const WaitMeter meter;
  const auto slow = [&] {
    device_->communication().submit_host(
        "slow", [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
    return device_->communication().record();
  };
  device_->compute().wait(slow());
  device_->compute().wait(slow(), meter);
  EXPECT_EQ(0.0, meter.seconds());
  device_->compute().synchronize();
  EXPECT_EQ(0.0, meter.seconds()) << "until waited_seconds() is asked";
  const double waited = device_->compute().waited_seconds();
  EXPECT_GT(meter.seconds(), 0.0);
  EXPECT_LT(meter.seconds(), waited);
}

TEST_F(CudaDevice, MarksNeitherRunAnythingNorStopTheHost) {
  Stream& stream = device_->compute();
  const std::int64_t synchronizations = emulated::synchronizations();
  const Mark begin = stream.mark();
  device_->kernels().zero(stream, allocate(1000, DType::fp32));
  const Event zeroed = stream.record();
  const Mark end = stream.mark();
  EXPECT_FALSE(end.seconds_since(begin));
  EXPECT_EQ(synchronizations, emulated::synchronizations());
  EXPECT_FALSE(zeroed.complete());
  stream.synchronize();
  EXPECT_GT(end.seconds_since(begin).value(), 0);
  const Mark host = cpu::open()->compute().mark();
  EXPECT_THAT(error_of([&] { static_cast<void>(end.seconds_since(host)); }),
              HasSubstr("cuda: marks of two devices have no clock in common"));
  EXPECT_THAT(error_of([&] { static_cast<void>(host.seconds_since(end)); }),
              HasSubstr("marks of streams of two devices have no clock in common"));
}

TEST_F(CudaDevice, AStepTakesNoMemoryOnceItHasRun) {
  const View view = allocate(1000, DType::fp32);
  const auto step = [&] {
    const auto norm = std::make_shared<ExactSum>();
    for (int i = 0; i < 300; ++i) {
      device_->kernels().zero(device_->communication(), view);
      device_->compute().wait(device_->communication().record());
      device_->kernels().tree_reduce(device_->compute(), {view},
                                     {.addends = {}, .destination = view, .norm = norm});
      device_->communication().wait(device_->compute().record());
    }
    device_->compute().synchronize();
    EXPECT_EQ(0.0, norm->value());
  };
  step();
  step();
  const std::int64_t allocations = emulated::allocations();
  const std::int64_t synchronizations = emulated::synchronizations();
  step();
  EXPECT_EQ(allocations, emulated::allocations());
  EXPECT_EQ(synchronizations + 1, emulated::synchronizations());
}

TEST_F(CudaDevice, AStickyErrorIsNamed) {
  emulated::break_context(cudaErrorIllegalAddress);
  EXPECT_THAT(error_of([&] { device_->compute().synchronize(); }),
              AllOf(StartsWith("cuda: wait for a stream: cudaErrorIllegalAddress"),
                    HasSubstr("device/cuda/stream.cpp:"), HasSubstr("the error is sticky")));
}

TEST_F(CudaDevice, ForeignStreamsAndHostMemoryAreRefused) {
  const auto cpu = cpu::open();
  EXPECT_EQ("cuda: work was submitted to a stream of another device; use the CUDA device's own",
            error_of([&] { native(cpu->compute()); }));
  std::vector<float> host(4);
  const View there = allocate(4, DType::bf16);
  EXPECT_EQ("convert: a view of 4 fp32 is host memory; copy it to the device first (equal dtypes)",
            error_of([&] {
              device_->kernels().convert(device_->compute(), View::of(std::span(host)), there);
            }));
}

}  // namespace
}  // namespace cuda
}  // namespace zero
