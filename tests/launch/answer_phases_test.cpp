// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// What a rank that answers writes to its flight file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/sign_of_life.h"
#include "collectives/backends.h"
#include "launch/flight/flight_reader.h"
#include "launch/generate/answer_session.h"
#include "launch/generate/generate_flags.h"
#include "launch/watch/run_faults.h"
#include "tests/launch/flight_states.h"
#include "tests/launch/saved_weights.h"

namespace zero::testing {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;

/// What a rank's flight file holds at the end.
struct Written {
  std::vector<std::string> phases{};       ///< "decode 3"
  std::vector<std::string> collectives{};  ///< of the second step, with their groups
  FlightState state{};
};

/// Two ranks that answer a prompt each with three tokens.
std::array<Written, 2> written(const GenerateFlags& flags) {
  std::array<Written, 2> all;
  const auto answer = [&](Communicator& world, Interrupts& interrupts) {
    FlightFile file = FlightFile::create("", world.rank(), world.size());
    const FlightReader reader(own_path(file));
    RunFaults faults(world, std::move(file), std::nullopt);
    faults.begin("world");
    AnswerSession session(flags, interrupts, world, &faults);
    session.phase("prompts");
    const AcceptedPrompt prompt{.request = {.prompt = {1, 2, 3}, .max_tokens = 3, .sampling = {}}};
    const std::vector<AcceptedPrompt> prompts(2, prompt);
    session.open(prompts);
    session.answer(prompts);
    session.finish();
    Written& mine = all.at(static_cast<std::size_t>(world.rank()));
    const std::vector<FlightGroup> groups = reader.groups();
    for (const FlightRecord& each : reader.records()) {
      if (each.kind == flight::Kind::phase) {
        mine.phases.push_back(fmt::format("{} {}", each.name, each.step));
      } else if (each.kind == flight::Kind::collective && each.step == 2) {
        mine.collectives.push_back(fmt::format("{} of {}", each.name, groups.at(each.group).name));
      }
    }
    mine.state = reader.read();
  };
  // Signals that are watched stay blocked in the thread that began to.
  std::async(std::launch::async, [&] {
    Interrupts interrupts;
    local::run(2, [&](Communicator& world) { answer(world, interrupts); });
  }).get();
  return all;
}

TEST(AnswerPhases, NameEachStepAndItsCollectivesOnAllRanks) {
  const SavedWeights saved;
  for (const int tensor : {1, 2}) {
    const GenerateFlags flags{
        .model = saved.folder(), .device = "cpu", .threads = "1", .tensor = tensor, .json = true};
    for (const Written& rank : written(flags)) {
      EXPECT_THAT(rank.phases, ElementsAre("start -1", "prompts -1", "load -1", "prefill 1",
                                           "between steps 1", "decode 2", "between steps 2",
                                           "decode 3", "between steps 3", "end 3"));
      EXPECT_THAT(rank.collectives, Contains(::testing::StartsWith("all_gather(passes) of ")));
      EXPECT_THAT(rank.collectives, Each(::testing::Not(::testing::EndsWith(" of "))))
          << "a group without a name";
      EXPECT_GT(rank.state.mean_step_seconds, 0);
    }
  }
}

// A watchdog would take long work on prompts, or on weights in memory, for an endless loop.
TEST(AnswerSession, GivesSignsOfLifeForPromptsAndWeights) {
  const SavedWeights saved;
  const GenerateFlags flags{.model = saved.folder(), .device = "cpu", .threads = "1", .json = true};
  std::async(std::launch::async, [&] {
    Interrupts interrupts;
    const auto alone = local::single();
    AnswerSession session(flags, interrupts, *alone);
    PromptSettings settings = session.usual_settings();
    settings.max_tokens = 3;
    const Prompt prompt{.where = "p", .content = Prompt::Ids{1, 2, 3}, .settings = settings};
    std::int64_t before = signs_of_life();
    const std::vector<AcceptedPrompt> accepted = session.accept({prompt, prompt, prompt});
    EXPECT_GE(signs_of_life() - before, 3) << "one a prompt";
    ASSERT_EQ(accepted.size(), 3U);
    before = signs_of_life();
    session.open(accepted);
    EXPECT_GE(signs_of_life() - before, 4) << "one a matrix";
  }).get();
}

}  // namespace
}  // namespace zero::testing
