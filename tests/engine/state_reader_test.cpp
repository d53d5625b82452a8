// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/state_reads.h"
#include "tests/engine/lazy_reading.h"
#include "tests/engine/plain.h"
#include "tests/engine/toy_run.h"
#include "tests/errors.h"
#include "tests/support/combinations.h"
#include "tests/support/test_device.h"

namespace zero::testing {
namespace {

using plain::all_values;
using plain::half_frozen;
using plain::lazily;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using toy::CopyingReader;

TEST(Reader, SeesTheSameStatesInEveryNumberOfRoundsAndOrderAndChangesNoBit) {
  for (const auto& [stage, compute] : cases_of({3, 2, 1, 0}, {DType::bf16, DType::fp32})) {
    SCOPED_TRACE(fmt::format("stage {}, {}", stage, name_of(compute)));
    toy::Job run{.world = 2, .engine = toy::options(stage, compute), .accumulation_steps = 2};
    const toy::Result alone = toy::train(run);
    run.read_rounds = 1;
    const toy::Result expected = toy::train(run);
    EXPECT_EQ(expected.hash, alone.hash);
    EXPECT_EQ(expected.losses, alone.losses);
    EXPECT_EQ(expected.norms, alone.norms);
    for (const int rounds : {3, 40}) {
      run.read_rounds = rounds;
      EXPECT_EQ(toy::train(run), expected);
      for (const StreamOrder& order : stream_orders(3)) {
        run.order = order;
        EXPECT_TRUE(toy::train(run).same_training(expected));
      }
      run.order.reset();
    }
  }
}

TEST(Reader, IsAskedForRoundsEvenlyOverTheComputeStepsOfAllMicroBatches) {
  plain::run(2, half_frozen(2), [](plain::Trainer& trainer, Communicator&) {
    Engine& engine = trainer.engine();
    CopyingReader reader(engine, 6);
    engine.states().attach(&reader);
    std::vector<std::size_t> counts;
    for (int j = 0; j < 2; ++j) {
      for (std::size_t i = 0; i < 10; ++i) {
        const bool forward = i < 5;
        if (forward)
          static_cast<void>(engine.forward(trainer.units()[i]));
        else
          static_cast<void>(engine.backward(trainer.units()[9 - i]));
        counts.push_back(reader.submitted().size());
      }
    }
    EXPECT_THAT(counts, ElementsAre(1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 6));
    EXPECT_THAT(reader.submitted(), ElementsAre(0, 1, 2, 3, 4, 5));
    engine.step({.learning_rate = 0.1});
    trainer.step();
    EXPECT_EQ(reader.submitted().size(), 6U);
  });
}

TEST(Reader, IsNotAskedDuringEvaluation) {
  lazily(half_frozen(), [](plain::Trainer& trainer) {
    Engine& engine = trainer.engine();
    trainer.step();
    const std::vector<float> before = all_values(engine);
    CopyingReader reader(engine, 4);
    engine.states().attach(&reader);
    engine.begin_evaluation();
    trainer.forward();
    trainer.forward();
    engine.end_evaluation();
    EXPECT_THAT(reader.submitted(), IsEmpty());
    trainer.step();
    engine.begin_evaluation();
    trainer.forward();
    engine.end_evaluation();
    EXPECT_EQ(reader.submitted().size(), 4U);
    EXPECT_TRUE(reader.copied() == before);
  });
}

TEST(Reader, WithoutRoundsIsAskedForVotesOnly) {
  lazily(half_frozen(), [](plain::Trainer& trainer) {
    CopyingReader reader(trainer.engine(), 0);
    reader.set_vote(3);
    trainer.engine().states().attach(&reader);
    trainer.step();
    EXPECT_THAT(reader.submitted(), IsEmpty());
    EXPECT_THAT(reader.sums(), ElementsAre(3));
  });
}

TEST(Reader, HearsTheSumOfTheVotesOfAllRanksAfterEachStep) {
  plain::Setup mesh = half_frozen();
  mesh.mesh = {2, 1, 2};
  mesh.slicing = plain::odd_slices;
  plain::run(4, mesh, [](plain::Trainer& trainer, Communicator& communicator) {
    CopyingReader reader(trainer.engine(), 2);
    trainer.step();
    trainer.engine().states().attach(&reader);
    reader.set_vote(communicator.rank() == 3 ? std::int64_t{1} << 32 : 1);
    trainer.step();
    reader.set_vote(-1);
    trainer.step();
    trainer.engine().states().attach(nullptr);
    trainer.step();
    EXPECT_THAT(reader.sums(), ElementsAre((std::int64_t{1} << 32) + 3, -4));
  });
}

/// Runs a collective on the engine's own communicator when it hears the votes, then detaches.
class Talker : public CopyingReader {
 public:
  explicit Talker(Engine& engine) : CopyingReader(engine, 3), engine_(engine) {}
  void counted(std::int64_t sum) override {
    CopyingReader::counted(sum);
    Stream& communication = engine_.device().communication();
    std::vector<float> values(1000, 1.0F);
    engine_.communicator().all_reduce(View::of(std::span(values)), ReduceOp::sum, communication,
                                      {"votes", {}});
    communication.synchronize();
    EXPECT_EQ(values[0], 3.0F);
    engine_.states().attach(nullptr);
  }

 private:
  Engine& engine_;
};

TEST(Reader, MayTalkAndDetachWhenItHearsVotesOutsideTheTrafficOfSteps) {
  plain::run(3, half_frozen(), [](plain::Trainer& trainer, Communicator&) {
    const std::int64_t plan = trainer.engine().planned_axes().total().of(Operation::all_reduce);
    Talker reader(trainer.engine());
    trainer.engine().states().attach(&reader);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(trainer.step().traffic.of(Operation::all_reduce), plan);
    EXPECT_EQ(reader.sums().size(), 1U);
  });
}

class Failing : public CopyingReader {
 public:
  Failing(Engine& engine, int at) : CopyingReader(engine, 4), at_(at) {}
  void submit(int round) override {
    if (round == at_) fail("the disk of round {} is gone", round);
    CopyingReader::submit(round);
  }
  void counted(std::int64_t) override {
    if (at_ < 0) fail("nothing was saved");
  }

 private:
  int at_;
};

TEST(Reader, ErrorsOfRoundsFailTheEngineAndThoseOfVotesOnlyTheStep) {
  const auto refused = [](const auto& call, const std::string& why) {
    EXPECT_THAT(error_of(call), HasSubstr(why));
  };
  plain::run(1, half_frozen(), [&](plain::Trainer& trainer, Communicator&) {
    Failing reader(trainer.engine(), 2);
    trainer.engine().states().attach(&reader);
    refused([&] { trainer.step(); }, "the disk of round 2 is gone");
    refused([&] { trainer.step(); }, "the disk of round 2 is gone");
    trainer.engine().states().attach(nullptr);  // as a reader's destructor does
    refused([&] { trainer.engine().states().attach(&reader); }, "the disk of round 2 is gone");
  });
  plain::run(1, half_frozen(), [&](plain::Trainer& trainer, Communicator&) {
    Failing reader(trainer.engine(), 1);
    trainer.engine().states().attach(&reader);
    refused([&] { trainer.engine().states().finish_reads(); }, "the disk of round 1 is gone");
    refused([&] { trainer.engine().states().hash(); }, "the disk of round 1 is gone");
  });
  plain::run(2, half_frozen(), [&](plain::Trainer& trainer, Communicator&) {
    Failing reader(trainer.engine(), -1);
    trainer.engine().states().attach(&reader);
    refused([&] { trainer.step(); }, "nothing was saved");
    EXPECT_EQ(trainer.engine().states().steps_done(), 1);
    trainer.engine().states().attach(nullptr);
    EXPECT_EQ(trainer.step().step, 2);
  });
}

}  // namespace
}  // namespace zero::testing
