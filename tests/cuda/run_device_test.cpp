// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/run_device.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/host.h"
#include "collectives/backends.h"
#include "collectives/forwarding_backend.h"
#include "inference/inference_memory.h"
#include "launch/config/train_config.h"
#include "launch/generate/generate_flags.h"
#include "launch/plan/machine.h"
#include "launch/process/device_choice.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/errors.h"
#include "tests/launch/tiny_run.h"
#include "tests/variable.h"

// Which GPU a rank takes that is a process, on the emulated machine.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A rank that says of itself that it is a process, as its backend and number on the host tell.
class AsProcess final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  BackendKind kind() const override { return BackendKind::host; }
  int local_rank() const override { return rank(); }
};

/// What each of `ranks` processes says that all see the GPUs of the same `machine`.
std::vector<std::string> refusals(const TinyRun& run, int ranks,
                                  const cuda::emulated::Settings& machine) {
  cuda::emulated::reset(machine);
  std::vector<std::string> messages(static_cast<std::size_t>(ranks));
  const TrainConfig config =
      make_train_config(Configuration::read(run.config(), {"run.device=cuda"}), ranks);
  local::run(ranks, [&](Communicator& rank) {
    Communicator process(std::make_shared<AsProcess>(rank));
    messages[static_cast<std::size_t>(rank.rank())] =
        error_of([&] { RunDevice(config, process, nullptr); });
  });
  EXPECT_EQ(cuda::emulated::allocations(), 0);
  cuda::emulated::reset();
  return messages;
}

DeviceChoice choice_of_process(int ranks) {
  return choose_device(device_facts(ranks, RanksAre::processes));
}

/// What run.device is on a rank once all have agreed, and what becomes of a run with it.
struct Agreed {
  std::string device;
  std::string why;
  std::string line;  ///< for people; empty: none
  std::string refusal;
};

/// Of each of `ranks` processes, which see all GPUs of the emulated machine.
std::vector<Agreed> agreed_devices(const TinyRun& run, int ranks,
                                   const std::vector<std::string>& overrides) {
  std::vector<Agreed> all(static_cast<std::size_t>(ranks));
  local::run(ranks, [&](Communicator& rank) {
    Communicator process(std::make_shared<AsProcess>(rank));
    Configuration values = Configuration::read(run.config(), overrides);
    if (values.is_null("run.device")) {
      const DeviceChoice mine = choice_of_process(ranks);
      EXPECT_EQ(mine.kind, DeviceKind::cuda);
      values.resolve("run.device", "cuda", mine.why);
    }
    Agreed& agreed = all[static_cast<std::size_t>(rank.rank())];
    agreed.line = agree_on_device(process, values, NcclSupport::built_in).value_or("");
    agreed.device = values.text("run.device");
    agreed.why = values.at("run.device").source;
    if (cuda::visible_devices() >= ranks) return;
    const TrainConfig config = make_train_config(std::move(values), ranks);
    agreed.refusal = error_of([&] { RunDevice(config, process, nullptr); });
  });
  EXPECT_EQ(cuda::emulated::allocations(), 0);
  return all;
}

TEST(EmulatedRunDevice, TwoProcessesOnOneGpuAreNamedBeforeTheyTakeMemory) {
  const TinyRun run;
  const std::vector<std::string> messages = refusals(run, 2, {});
  EXPECT_THAT(
      messages[0],
      AllOf(HasSubstr("ranks 0 and 1 are both on GPU-"), HasSubstr(" of " + host_name()),
            HasSubstr("srun --gpus-per-node=N --gpu-bind=none, without CUDA_VISIBLE_DEVICES"),
            HasSubstr("run.device=cpu")));
  EXPECT_EQ(messages[1], messages[0]);
}

TEST(EmulatedRunDevice, AProcessThatSeesTooFewGpusSaysHowMany) {
  const TinyRun run;
  const std::vector<std::string> messages = refusals(run, 3, {.devices = 2});
  EXPECT_THAT(messages[0], AllOf(HasSubstr("rank 2"), HasSubstr("is rank 2 of its host, from 0"),
                                 HasSubstr("its process sees 2 GPUs"),
                                 HasSubstr("srun --gpus-per-node=N --gpu-bind=none")));
  EXPECT_EQ(messages[2], messages[0]);
}

TEST(EmulatedRunDevice, AutoTakesTheOneGpuThatALauncherGaveAProcess) {
  cuda::emulated::reset({});
  EXPECT_EQ(choice_of_process(1).kind, DeviceKind::cuda);
  EXPECT_EQ(choice_of_process(4).kind, DeviceKind::cpu);
  const Variable one("CUDA_VISIBLE_DEVICES=2");
  EXPECT_EQ(choice_of_process(4).kind, DeviceKind::cuda);
  EXPECT_EQ(choice_of_process(4).why, "auto: the GPU of CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(choose_device(device_facts(4, RanksAre::threads)).kind, DeviceKind::cpu);
  cuda::emulated::reset({.devices = 2});
  const Variable two("CUDA_VISIBLE_DEVICES=0,1");
  EXPECT_EQ(choice_of_process(4).kind, DeviceKind::cpu);
  EXPECT_EQ(choice_of_process(2).kind, DeviceKind::cuda);
  cuda::emulated::reset();
}

// As with `export CUDA_VISIBLE_DEVICES=0` in a shell's start-up file.
TEST(EmulatedRunDevice, AutoIsTheCpuWhereTwoProcessesWereGivenOneGpu) {
  const TinyRun run;
  cuda::emulated::reset({});
  const Variable one("CUDA_VISIBLE_DEVICES=0");
  for (const Agreed& rank : agreed_devices(run, 3, {})) {
    EXPECT_EQ(rank.device, "cpu");
    EXPECT_THAT(rank.why, AllOf(StartsWith("auto: ranks 0 and 1 are both on GPU-"),
                                EndsWith(" of " + host_name())));
    EXPECT_THAT(rank.line,
                AllOf(HasSubstr(rank.why.substr(std::string("auto: ").size()) +
                                ": all ranks compute on the CPU; for GPUs start no more ranks"),
                      HasSubstr("--gpu-bind=none"), HasSubstr("run.device=cpu")));
    EXPECT_EQ(rank.refusal, "no error");
  }
  // Whoever asks for GPUs is told that there are none.
  for (const Agreed& rank : agreed_devices(run, 3, {"run.device=cuda"})) {
    EXPECT_EQ(rank.device, "cuda");
    EXPECT_EQ(rank.line, "");
    EXPECT_THAT(rank.refusal, HasSubstr("ranks 0 and 1 are both on GPU-"));
  }
  cuda::emulated::reset();
}

TEST(EmulatedRunDevice, AutoStaysWithGpusThatRanksDoNotShare) {
  const TinyRun run;
  cuda::emulated::reset({.devices = 2});
  for (const Agreed& rank : agreed_devices(run, 2, {})) {
    EXPECT_EQ(rank.device, "cuda");
    EXPECT_EQ(rank.why, "auto: 2 GPU(s)");
    EXPECT_EQ(rank.line, "");
  }
  cuda::emulated::reset();
}

// The first rank was given a GPU that the third was given too; the second sees none.
TEST(EmulatedRunDevice, AutoLeavesTheChoiceOfARankWithoutGpuAlone) {
  const TinyRun run;
  cuda::emulated::reset({});
  local::run(3, [&](Communicator& rank) {
    Communicator process(std::make_shared<AsProcess>(rank));
    Configuration values = Configuration::read(run.config(), {});
    const bool has_gpu = rank.rank() != 1;
    values.resolve("run.device", has_gpu ? "cuda" : "cpu", has_gpu ? "auto: one" : "auto: none");
    const auto line = agree_on_device(process, values, NcclSupport::built_in);
    EXPECT_EQ(values.text("run.device"), "cpu");
    EXPECT_THAT(line.value_or(""), HasSubstr("ranks 0 and 2 are both on GPU-"));
    EXPECT_THAT(values.at("run.device").source, StartsWith(has_gpu ? "auto: ranks" : "auto: none"));
  });
  cuda::emulated::reset();
}

// As on hosts of which one has a GPU for each of its ranks and the other has none.
TEST(EmulatedRunDevice, AutoIsTheCpuWhereARankHasNoGpu) {
  const TinyRun run;
  cuda::emulated::reset({.devices = 2});
  local::run(3, [&](Communicator& rank) {
    Communicator process(std::make_shared<AsProcess>(rank));
    Configuration values = Configuration::read(run.config(), {});
    const bool has_gpu = rank.rank() != 2;
    values.resolve("run.device", has_gpu ? "cuda" : "cpu", has_gpu ? "auto: one" : "auto: none");
    const auto line = agree_on_device(process, values, NcclSupport::built_in);
    EXPECT_EQ(values.text("run.device"), "cpu");
    EXPECT_THAT(line.value_or(""),
                AllOf(StartsWith("run.device is \"auto\", and rank 0 has GPU-"),
                      HasSubstr(", rank 2 has no GPU of its own: all ranks compute on the CPU")));
  });
  cuda::emulated::reset();
}

TEST(EmulatedRunDevice, AutoIsTheCpuWhereTheBuildHasNoNccl) {
  const TinyRun run;
  cuda::emulated::reset({.devices = 2});
  const auto agreed = [&](const std::string& device, NcclSupport nccl) {
    std::string line;
    local::run(2, [&](Communicator& rank) {
      Communicator process(std::make_shared<AsProcess>(rank));
      Configuration values = Configuration::read(run.config(), {});
      values.resolve("run.device", "cuda", device == "auto" ? "auto: 2 GPU(s)" : "--set");
      const auto said = agree_on_device(process, values, nccl);
      EXPECT_EQ(values.text("run.device"), said ? "cpu" : "cuda");
      if (rank.rank() == 0) line = said.value_or("");
    });
    return line;
  };
  EXPECT_EQ(agreed("auto", NcclSupport::built_in), "");
  EXPECT_EQ(agreed("cuda", NcclSupport::missing), "") << "RunDevice refuses what the user chose";
  EXPECT_THAT(agreed("auto", NcclSupport::missing),
              HasSubstr("this build has no NCCL, through which 2 GPUs talk: all ranks compute on "
                        "the CPU; for GPUs launch/install_cuda.sh brings NCCL"));
  cuda::emulated::reset();
}

// As an A100 with a build for H100.
TEST(EmulatedRunDevice, AutoIsTheCpuWhereTheBuildHasNoCodeForTheGpu) {
  const TinyRun run;
  constexpr const char* kWhy =
      "this build has code for 90a-real and none for GPU 0, Emulated GPU of compute capability 8.0";
  cuda::emulated::reset({.devices = 2, .capability = 80});
  for (const RanksAre are : {RanksAre::threads, RanksAre::processes}) {
    const DeviceChoice choice = choose_device(device_facts(2, are));
    EXPECT_EQ(choice.kind, DeviceKind::cpu);
    EXPECT_EQ(choice.why, std::string("auto: ") + kWhy);
  }
  cuda::emulated::reset({.devices = 2, .last_capability = 80});
  EXPECT_EQ(choose_device(device_facts(1, RanksAre::threads)).kind, DeviceKind::cuda);
  EXPECT_THAT(choose_device(device_facts(2, RanksAre::threads)).why, HasSubstr("none for GPU 1"));
  cuda::emulated::reset({.devices = 2, .capability = 80});
  const auto agreed = [&](const std::string& device, const std::string& source) {
    std::string line;
    local::run(2, [&](Communicator& rank) {
      Communicator process(std::make_shared<AsProcess>(rank));
      Configuration values = Configuration::read(run.config(), {});
      values.resolve("run.device", device, source);
      line = agree_on_device(process, values, NcclSupport::built_in).value_or("");
      EXPECT_EQ(values.text("run.device"), source == "--set" ? device : "cpu");
    });
    return line;
  };
  const std::string line = fmt::format(
      "run.device is \"auto\", and {}: all ranks compute on the CPU; for GPUs configure "
      "with -DZERO_CUDA_ARCHITECTURES=80-real; run.device=cpu leaves this line out",
      kWhy);
  EXPECT_EQ(agreed("cpu", std::string("auto: ") + kWhy), line);
  EXPECT_EQ(agreed("cuda", "auto: 2 GPU(s)"), line) << "a rank on another host has the right GPU";
  EXPECT_EQ(agreed("cpu", "--set"), "");
  EXPECT_EQ(agreed("cuda", "--set"), "");
  for (const std::string& refusal : refusals(run, 2, {.devices = 2, .capability = 80})) {
    EXPECT_THAT(refusal, AllOf(HasSubstr(kWhy), HasSubstr("-DZERO_CUDA_ARCHITECTURES=80-real")));
  }
}

TEST(GenerateDevice, IsTheCpuWithALineIfTheBuildHasNoCodeForTheGpu) {
  GenerateFlags flags;
  cuda::emulated::reset();
  EXPECT_EQ(device_note(flags), "");
  cuda::emulated::reset({.capability = 80});
  EXPECT_EQ(device_kind(flags), DeviceKind::cpu);
  EXPECT_EQ(device_note(flags),
            "--device auto: this build has code for 90a-real and none for GPU 0, Emulated GPU of "
            "compute capability 8.0: it computes on the CPU; for the GPU configure with "
            "-DZERO_CUDA_ARCHITECTURES=80-real; --device cpu leaves this line out");
  EXPECT_EQ(device_note(flags, 2), "") << "several ranks answer on CPUs";
  flags.device = "cpu";
  EXPECT_EQ(device_note(flags), "");
  flags.device = "cuda";
  EXPECT_EQ(device_note(flags), "");
  EXPECT_THAT(error_of([&] { open_device(device_kind(flags), 1); }),
              HasSubstr("configure with -DZERO_CUDA_ARCHITECTURES=80-real"));
  cuda::emulated::reset();
}

TEST(GenerateDevice, LeavesPartOfWhatIsFreeToLibraries) {
  cuda::emulated::reset({.memory = std::size_t{3} << 30});
  const std::int64_t free = open_device(DeviceKind::cuda, 1)->capacity().free;
  EXPECT_EQ(free_for_plans_on_gpu(), free - (std::int64_t{1} << 30));
  cuda::emulated::reset({.memory = std::size_t{1} << 30});
  EXPECT_THAT(error_of([] { free_for_plans_on_gpu(); }),
              AllOf(HasSubstr("of the GPU are free, expected more than the 1.00 GiB that CUDA's"),
                    HasSubstr("end what else runs there")));
  cuda::emulated::reset();
}

TEST(PlannedMachine, HasTheLeastThatIsFreeOnAnyGpu) {
  cuda::emulated::reset({.devices = 3, .memory = std::size_t{4} << 30});
  {
    const auto second = cuda::open({.index = 1});
    const Buffer taken =
        second->allocate(256 << 20, DType::u8, MemoryClass::optimizer, "of another program");
    const Machine machine = this_machine(0);
    EXPECT_EQ(machine.devices, 3);
    EXPECT_EQ(machine.memory, second->capacity().free);
    EXPECT_EQ(machine.reserve, std::int64_t{2} << 30);
    EXPECT_GT(machine.host_memory, 0);
    EXPECT_THAT(machine.text(), AllOf(HasSubstr(", free on GPU 1, the least of all, "),
                                      HasSubstr("2.15 GB (2.00 GiB) of it kept free")));
  }
  cuda::emulated::reset({.memory = std::size_t{4} << 30});
  const Machine one = this_machine(0);
  EXPECT_EQ(one.budget(), std::int64_t{3} << 30);
  EXPECT_EQ(one.memory_source, "free on GPU 0");
  cuda::emulated::reset();
}

TEST(GenerateDevice, IsAGpuIfThereIsOneAndItIsAskedFor) {
  const auto opened = [](const char* device) {
    GenerateFlags flags;
    flags.device = device;
    const DeviceKind kind = device_kind(flags);
    const auto plan = plan_device(kind, 1);
    return std::string(open_device(kind, 1)->name()) + ", planned as " + std::string(plan->name());
  };
  cuda::emulated::reset();
  EXPECT_EQ(opened("auto"), "cuda:0, planned as planning cuda");
  EXPECT_EQ(opened("cuda"), "cuda:0, planned as planning cuda");
  EXPECT_EQ(opened("cpu"), "cpu, planned as planning");
  cuda::emulated::reset({.devices = 0});
  EXPECT_EQ(opened("auto"), "cpu, planned as planning");
  EXPECT_THAT(error_of([&] { opened("cuda"); }), HasSubstr("use a CPU device"));
  cuda::emulated::reset();
}

}  // namespace
}  // namespace zero::testing
