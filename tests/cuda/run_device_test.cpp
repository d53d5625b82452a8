// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/run_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "collectives/backends.h"
#include "collectives/decorator.h"
#include "launch/process.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/errors.h"
#include "tests/launch/tiny_run.h"

// Which GPU a rank takes that is a process, on the emulated machine.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A rank that says of itself that it is a process, as its backend and number on the host tell.
class AsProcess final : public CommunicatorDecorator {
 public:
  using CommunicatorDecorator::CommunicatorDecorator;
  std::string_view backend() const override { return "host"; }
  int local_rank() const override { return rank(); }

 protected:
  void do_all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override {
    inner_.all_gather(mine, full, stream, tag);
  }
  void do_reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                         Stream& stream, const Tag& tag) override {
    inner_.reduce_scatter(full, epilogue, workspace, stream, tag);
  }
  void do_all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) override {
    inner_.all_reduce(values, op, stream, tag);
  }
  void do_all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                     const Tag& tag) override {
    inner_.all_to_all(send, receive, stream, tag);
  }
  void do_broadcast(View values, int root, Stream& stream, const Tag& tag) override {
    inner_.broadcast(values, root, stream, tag);
  }
  void do_barrier(Stream& stream, const Tag& tag) override { inner_.barrier(stream, tag); }
};

/// What each of `ranks` processes says that all see the same `gpus`.
std::vector<std::string> refusals(const TinyRun& run, int ranks, int gpus) {
  cuda::emulated::reset({.devices = gpus});
  std::vector<std::string> messages(static_cast<std::size_t>(ranks));
  const TrainConfig config =
      make_train_config(Configuration::read(run.config(), {"run.device=cuda"}), ranks);
  local::run(ranks, [&](Communicator& rank) {
    AsProcess process(rank);
    messages[static_cast<std::size_t>(rank.rank())] =
        message_of([&] { RunDevice(config, process, nullptr); });
  });
  EXPECT_EQ(cuda::emulated::allocations(), 0);
  cuda::emulated::reset();
  return messages;
}

TEST(EmulatedRunDevice, TwoProcessesOnOneGpuAreNamedBeforeTheyTakeMemory) {
  const TinyRun run;
  const std::vector<std::string> messages = refusals(run, 2, 1);
  EXPECT_THAT(messages[0],
              AllOf(HasSubstr("ranks 0 and 1 are both on GPU-"), HasSubstr(" of " + host_name()),
                    HasSubstr("CUDA_VISIBLE_DEVICES"), HasSubstr("run.device=cpu")));
  EXPECT_EQ(messages[1], messages[0]);
}

TEST(EmulatedRunDevice, AProcessThatSeesTooFewGpusSaysHowMany) {
  const TinyRun run;
  const std::vector<std::string> messages = refusals(run, 3, 2);
  EXPECT_THAT(messages[0], AllOf(HasSubstr("rank 2"), HasSubstr("is rank 2 of its host, from 0"),
                                 HasSubstr("its process sees 2 GPUs")));
  EXPECT_EQ(messages[2], messages[0]);
}

TEST(EmulatedRunDevice, AutoTakesTheOneGpuThatALauncherGaveAProcess) {
  cuda::emulated::reset({});
  EXPECT_EQ(choose_device_of_process(1).kind, DeviceKind::cuda);
  EXPECT_EQ(choose_device_of_process(4).kind, DeviceKind::cpu);
  ::setenv("CUDA_VISIBLE_DEVICES", "2", 1);
  EXPECT_EQ(choose_device_of_process(4).kind, DeviceKind::cuda);
  EXPECT_EQ(choose_device_of_process(4).why, "auto: the GPU of CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(choose_device(4).kind, DeviceKind::cpu);
  cuda::emulated::reset({.devices = 2});
  ::setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
  EXPECT_EQ(choose_device_of_process(4).kind, DeviceKind::cpu);
  EXPECT_EQ(choose_device_of_process(2).kind, DeviceKind::cuda);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  cuda::emulated::reset();
}

}  // namespace
}  // namespace zero::testing
