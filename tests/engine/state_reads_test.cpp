// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/state_reads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "tests/engine/host_device.h"
#include "tests/engine/lazy_reading.h"
#include "tests/errors.h"
#include "tests/support/test_device.h"

// When updates and other changes of states wait for reads, and what that costs.
namespace zero {
namespace {

using plain::all_values;
using plain::half_frozen;
using plain::lazily;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using toy::CopyingReader;

TEST(Reads, GoOnBehindASkippedUpdate) {
  plain::Setup one = half_frozen();
  one.units = {{"a", {{"weight", {70}, init::ones()}}}};
  lazily(one, [](plain::Trainer& trainer) {
    Engine& engine = trainer.engine();
    const UnitId unit = trainer.units()[0];
    const auto step = [&](float value) {
      static_cast<void>(engine.forward(unit));
      {
        const GradientLease lease = engine.backward(unit);
        engine.device().compute().submit("gradient", [view = lease.gradient(0), value] {
          std::ranges::fill(view.as<bfloat16>(), to_bfloat16(value));
        });
      }
      return engine.step({.learning_rate = 0.1});
    };
    step(1.0F);
    const std::vector<float> before = all_values(engine);
    CopyingReader reader(engine, 2);
    engine.states().attach(&reader);
    EXPECT_EQ(step(std::numeric_limits<float>::quiet_NaN()).nonfinite, "a.weight");
    EXPECT_EQ(engine.states().steps_skipped(), 1);
    EXPECT_FALSE(step(1.0F).nonfinite);
    EXPECT_TRUE(reader.copied() == before);
  });
}

TEST(Reads, SeeTheUpdateBeforeThem) {
  lazily(half_frozen(), [](plain::Trainer& trainer) {
    Engine& engine = trainer.engine();
    CopyingReader reader(engine, 3);
    trainer.step();
    engine.states().attach(&reader);
    engine.states().finish_reads();
    engine.device().transfer().synchronize();  // runs of other streams what it waits for
    const std::vector<float> copied = reader.copied();
    EXPECT_TRUE(copied == all_values(engine));
  });
}

TEST(Reads, OfAReplacedReaderAreNoLongerAskedForAndUpdatesWaitForThoseSubmitted) {
  lazily(half_frozen(), [](plain::Trainer& trainer) {
    Engine& engine = trainer.engine();
    trainer.step();
    const std::vector<float> before = all_values(engine);
    CopyingReader reader(engine, 10);
    CopyingReader whole(engine, 1);
    engine.states().attach(&reader);
    trainer.forward();
    engine.states().attach(nullptr);
    trainer.backward(0);
    engine.step({.learning_rate = 0.1});
    EXPECT_THAT(reader.submitted(), ElementsAre(0, 1, 2, 3, 4));
    EXPECT_TRUE(reader.of_rounds(5, reader.copied()) == reader.of_rounds(5, before));
    engine.states().attach(&whole);
    engine.states().finish_reads();
    engine.states().attach(&reader);  // again from the first round, behind the other's
    trainer.step();
    EXPECT_EQ(reader.submitted().size(), 15U);
    const std::vector<float> now = reader.copied();
    EXPECT_TRUE(now == whole.copied());
    EXPECT_FALSE(now == before);
  });
}

TEST(Reads, OfADetachedReaderAreStillWaitedFor) {
  lazily(half_frozen(), [](plain::Trainer& trainer) {
    Engine& engine = trainer.engine();
    trainer.step();
    const std::vector<float> before = all_values(engine);
    CopyingReader reader(engine, 11);
    engine.states().attach(&reader);
    trainer.forward();
    trainer.backward(0);
    engine.states().attach(nullptr);
    engine.step({.learning_rate = 0.1});
    trainer.step();
    EXPECT_EQ(reader.submitted().size(), 11U);
    EXPECT_TRUE(reader.copied() == before);
  });
}

TEST(Reads, OfAReplacedReaderAreStillWaitedFor) {
  lazily(half_frozen(), [](plain::Trainer& trainer) {
    Engine& engine = trainer.engine();
    trainer.step();
    const std::vector<float> before = all_values(engine);
    CopyingReader reader(engine, 3);
    CopyingReader votes_only(engine, 0);
    engine.states().attach(&reader);
    engine.states().finish_reads();
    engine.states().attach(&votes_only);
    trainer.step();
    EXPECT_TRUE(reader.copied() == before);
  });
}

TEST(Reads, AreFinishedBeforeStatesAreChangedFromOutside) {
  using Change = std::function<void(Engine&)>;
  std::vector<float> values(31 * 17, 2.0F);
  const View view = View::of(std::span(values));
  const std::vector<Change> changes = {
      [&](Engine& engine) {
        engine.states().write("embedding.tokens", StateKind::parameter, view);
      },
      [&](Engine& engine) { engine.states().write("embedding.tokens", StateKind::moment0, view); },
      [](Engine& engine) { engine.states().initialise(); },
      [](Engine& engine) { engine.states().restore(7); },
      [](Engine& engine) { engine.states().publish_parameters(); },
      [&](Engine& engine) {
        engine.states().finish_reads();
        engine.states().set(engine.states().tensors(StateKind::parameter)[0], 0, view);
      }};
  for (const Change& change : changes) {
    lazily(half_frozen(), [&](plain::Trainer& trainer) {
      Engine& engine = trainer.engine();
      trainer.step();
      const std::vector<float> before = all_values(engine);
      CopyingReader reader(engine, 4);
      engine.states().attach(&reader);
      change(engine);
      EXPECT_EQ(reader.submitted().size(), 4U);
      engine.device().compute().synchronize();
      EXPECT_TRUE(reader.copied() == before);
      trainer.step();
      EXPECT_EQ(reader.submitted().size(), 4U);
    });
  }
}

TEST(Reads, ThatAreLeftForbidSettingStates) {
  plain::run(1, half_frozen(), [](plain::Trainer& trainer, Communicator&) {
    Engine& engine = trainer.engine();
    std::vector<float> values(5);
    CopyingReader reader(engine, 4);
    engine.states().attach(&reader);
    EXPECT_THAT(error_of([&] {
                  engine.states().set(engine.states().tensors(StateKind::parameter)[0], 0,
                                      View::of(std::span(values)));
                }),
                HasSubstr("set: the attached reader has rounds left; call finish_reads()"));
  });
}

TEST(Reads, BeginBetweenStepsAndAreFinishedBetweenLeases) {
  plain::run(1, half_frozen(), [](plain::Trainer& trainer, Communicator&) {
    Engine& engine = trainer.engine();
    CopyingReader reader(engine, 4);
    engine.states().attach(&reader);
    {
      const ParameterLease lease = engine.forward(trainer.units()[0]);
      EXPECT_THAT(error_of([&] { engine.states().finish_reads(); }),
                  HasSubstr("finish_reads: a lease has not ended; only between leases"));
    }
    EXPECT_THAT(error_of([&] { engine.states().attach(&reader); }),
                HasSubstr("attach: only between optimizer steps"));
    engine.states().finish_reads();
    EXPECT_EQ(reader.submitted().size(), 4U);
    CopyingReader wrong(engine, -1);
    engine.states().attach(nullptr);
    for (std::size_t i = 1; i < 5; ++i) static_cast<void>(engine.forward(trainer.units()[i]));
    trainer.backward(0);
    engine.step({.learning_rate = 0.1});
    EXPECT_THAT(error_of([&] { engine.states().attach(&wrong); }),
                HasSubstr("attach: the reader has -1 rounds, expected 0 or more"));
  });
}

TEST(Reads, OfAnEngineThatEndsAreFinished) {
  local::run(1, [](Communicator& communicator) {
    for (const bool lazy : {false, true}) {
      const std::unique_ptr<Device> device = lazy ? testing::open({}) : cpu::open();
      std::vector<float> before;
      std::unique_ptr<CopyingReader> reader;
      {
        plain::Trainer trainer(communicator, *device, half_frozen());
        before = all_values(trainer.engine());
        reader = std::make_unique<CopyingReader>(trainer.engine(), 3);
        trainer.engine().states().attach(reader.get());
        trainer.forward();
        trainer.backward(0);
      }
      EXPECT_EQ(reader->submitted().size(), 3U);
      EXPECT_TRUE(reader->copied() == before);
    }
  });
}

/// Counts a thousand seconds for each wait for an event that is not complete.
class PatientStream final : public Stream {
 public:
  Event record() override { return {}; }
  void synchronize() override {}
  double waited_seconds() const override { return waited_; }
  static constexpr double kSeconds = 1000;

 private:
  void do_submit(std::string_view /*what*/, Work work) override { work(); }
  void do_wait(const Event& event) override { waited_ += event.complete() ? 0 : kSeconds; }
  double waited_ = 0;
};

/// Whose reads take long, and whose rounds wait once.
class Slow : public CopyingReader {
 public:
  explicit Slow(Engine& engine) : CopyingReader(engine, 2), engine_(engine) {}
  void submit(int round) override {
    CopyingReader::submit(round);
    engine_.device().compute().wait(never());
  }
  Event read(int /*unit*/) override { return never(); }

 private:
  struct Never final : Event::State {
    bool complete() override { return false; }
    void synchronize() override {}
  };
  static Event never() { return Event(std::make_shared<Never>()); }
  Engine& engine_;
};

TEST(Reads, CostWhatTrainingWaitsForThemApartFromExposedCommunication) {
  local::run(1, [](Communicator& communicator) {
    testing::HostDevice<PatientStream> device;
    plain::Trainer trainer(communicator, device, half_frozen());
    trainer.step();
    Slow reader(trainer.engine());
    trainer.engine().states().attach(&reader);
    const StepReport report = trainer.step();
    const double waits = 2 + 5;  // rounds, and units with parameters to update
    EXPECT_NEAR(report.save_seconds, waits * PatientStream::kSeconds, PatientStream::kSeconds / 2);
    EXPECT_NEAR(report.exposed_seconds, 0, PatientStream::kSeconds / 2);
    EXPECT_EQ(trainer.step().exposed_seconds, 0);
  });
}

}  // namespace
}  // namespace zero
