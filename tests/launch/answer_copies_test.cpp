// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// Who hears of a failure that the ranks of one copy of a model agree on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <string>
#include <vector>

#include "launch/generate/answer_session.h"
#include "launch/generate/generate_flags.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/launch/saved_weights.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// How four ranks open as many copies of a model, where the disk of the second rank fails:
/// "opened", "agreed: " with an error that all ranks of the job know, or "alone: " with one that
/// others do not.
std::vector<std::string> opened(int replicate) {
  const SavedWeights saved;
  const Scratch nvme;
  std::vector<std::string> all(4);
  const auto open = [&](Communicator& world, Interrupts& interrupts) {
    Faults faults("disk on fire");
    if (world.rank() == 1) faults.fail_at("queue write", 0);
    HookedDisk disk(std::ref(faults));
    GenerateFlags flags{
        .model = saved.folder(), .device = "cpu", .threads = "1", .replicate = replicate};
    flags.offload.folder = nvme.path();
    flags.offload.disk = &disk;
    const AcceptedPrompt prompt{.request = {.prompt = {1, 2, 3}, .max_tokens = 5, .sampling = {}}};
    AnswerSession session(flags, interrupts, world);
    std::string& said = all[static_cast<std::size_t>(world.rank())];
    try {
      session.open(std::vector<AcceptedPrompt>(4, prompt));
      said = "opened";
    } catch (const AgreedError& error) {
      said = std::string("agreed: ") + error.what();
    } catch (const Error& error) {
      said = std::string("alone: ") + error.what();
    }
  };
  // Signals that are watched stay blocked in the thread that began to.
  std::async(std::launch::async, [&] {
    Interrupts interrupts;
    local::run(4, [&](Communicator& world) { open(world, interrupts); });
  }).get();
  EXPECT_THAT(nvme.names(), IsEmpty());
  return all;
}

TEST(AnswerCopies, AgreeOnNoFailureOfAnother) {
  EXPECT_THAT(opened(1), Each(AllOf(StartsWith("agreed: "), HasSubstr("disk on fire"))));
  const auto alone = AllOf(StartsWith("alone: "), HasSubstr("disk on fire"));
  EXPECT_THAT(opened(2), ElementsAre(alone, alone, "opened", "opened"));
  EXPECT_THAT(opened(4), ElementsAre("opened", alone, "opened", "opened"));
}

}  // namespace
}  // namespace zero::testing
