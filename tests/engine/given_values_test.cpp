// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What ranks must give alike: the same error on all of them where one strays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/plain.h"
#include "tests/errors.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kStray = 2;

/// The messages of `call`, by rank; each rank has an engine of `stage` whose gradients are ready.
std::vector<std::string> messages_of(
    int stage, const std::function<void(plain::Trainer&, Communicator&)>& call) {
  std::vector<std::string> messages(kRanks);
  plain::run(kRanks, {plain::options(stage), plain::odd_units(), 1},
             [&](plain::Trainer& trainer, Communicator& ranks) {
               trainer.step();
               messages[static_cast<std::size_t>(ranks.rank())] =
                   error_of([&] { call(trainer, ranks); });
             });
  return messages;
}

StepReport step(plain::Trainer& trainer, const StepOptions& options) {
  trainer.forward();
  trainer.backward(0);
  return trainer.engine().step(options);
}

TEST(GivenValues, AStrayingStepOptionIsNamedOnAllRanksAtEveryStage) {
  for (const int stage : {0, 1, 2, 3}) {
    EXPECT_THAT(messages_of(stage,
                            [](plain::Trainer& trainer, Communicator& ranks) {
                              const bool strays = ranks.rank() == kStray;
                              step(trainer, {.learning_rate = strays ? 0.003 : 0.001});
                            }),
                Each(AllOf(HasSubstr("step: rank 2 has \"learning_rate: 0.003\""),
                           HasSubstr("rank 0 has \"learning_rate: 0.001\""),
                           HasSubstr("all ranks must be started alike"))));
  }
  EXPECT_THAT(messages_of(3,
                          [](plain::Trainer& trainer, Communicator& ranks) {
                            const bool strays = ranks.rank() == kStray;
                            step(trainer, {.learning_rate = 1, .loss_scale = strays ? 2.0 : 4.0});
                          }),
              Each(HasSubstr("rank 2 has \"loss_scale: 2\", rank 0 has \"loss_scale: 4\"")));
}

TEST(GivenValues, TheEngineCannotGoOnAndHasNotUpdated) {
  plain::run(kRanks, {plain::options(3), plain::odd_units(), 1},
             [&](plain::Trainer& trainer, Communicator& ranks) {
               const std::string first =
                   error_of([&] { step(trainer, {.learning_rate = 0.001 * (1 + ranks.rank())}); });
               EXPECT_THAT(first, HasSubstr("learning_rate: 0.002"));
               EXPECT_EQ(error_of([&] { trainer.engine().step({}); }), first);
               EXPECT_EQ(trainer.engine().states().steps_done(), 0);
             });
}

TEST(GivenValues, StrayingWritesAreNamedAtTheNextStep) {
  const auto write = [](plain::Trainer& trainer, Communicator& ranks, StateKind kind, float stray) {
    std::vector<float> values(13, 0.5F);
    values.back() += ranks.rank() == kStray ? stray : 0.0F;
    trainer.engine().states().write("first.bias", kind, View::of(std::span(values)));
  };
  for (const int stage : {0, 3}) {
    EXPECT_THAT(messages_of(stage,
                            [&](plain::Trainer& trainer, Communicator& ranks) {
                              write(trainer, ranks, StateKind::moment1, 0);
                              write(trainer, ranks, StateKind::parameter, 1e-7F);
                              step(trainer, {.learning_rate = 1});
                            }),
                Each(AllOf(HasSubstr("rank 2 has \"write(first.bias, parameter): values of hash"),
                           HasSubstr("rank 0 has \"write(first.bias, parameter)"))));
    EXPECT_THAT(messages_of(stage,
                            [&](plain::Trainer& trainer, Communicator& ranks) {
                              trainer.engine().states().restore(ranks.rank() == kStray ? 7 : 6);
                              step(trainer, {.learning_rate = 1});
                            }),
                Each(HasSubstr("rank 2 has \"step: 8\", rank 0 has \"step: 7\"")));
    EXPECT_THAT(messages_of(stage,
                            [&](plain::Trainer& trainer, Communicator& ranks) {
                              write(trainer, ranks, StateKind::parameter, 0);
                              step(trainer, {.learning_rate = 1});
                              step(trainer, {.learning_rate = 1});
                            }),
                Each(std::string("no error")));
  }
}

TEST(GivenValues, AnEvaluationOfOneRankAloneIsRefusedAtEveryStage) {
  for (const int stage : {0, 1, 2, 3}) {
    EXPECT_THAT(messages_of(stage,
                            [](plain::Trainer& trainer, Communicator& ranks) {
                              if (ranks.rank() == kStray) trainer.engine().begin_evaluation();
                              step(trainer, {.learning_rate = 1});
                              trainer.engine().device().communication().synchronize();
                            }),
                Each(HasSubstr("barrier(begin_evaluation)")))
        << stage;
  }
}

}  // namespace
}  // namespace zero
