// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "device/host_access.h"
#include "tests/engine/plain.h"
#include "tests/errors.h"

namespace zero {
namespace {

using ::testing::HasSubstr;

using Gradients = std::map<std::string, std::vector<float>>;

/// What a step made of its gradients.
struct Stepped {
  double norm = 0;
  bool clipped = false;
  std::uint64_t hash = 0;
  Gradients gradients;  ///< as read before the step, equal on all ranks
  friend bool operator==(const Stepped&, const Stepped&) = default;
};

struct Case {
  int world = 1;
  plain::Setup setup{};
};

Case on(int stage, int world, DType compute = DType::fp32) {
  Case made{world, {plain::options(stage, compute), plain::odd_units(), 1}};
  made.setup.engine.gradient_clipping = 0.5;  // that bites
  return made;
}

void run_micro_batches(plain::Trainer& trainer, const Case& of, std::int64_t from) {
  const Communicator& data = trainer.engine().mesh().data();
  for (int j = 0; j < of.setup.accumulation_steps; ++j) {
    trainer.forward();
    trainer.backward(from + std::int64_t{j} * data.size() + data.rank());
  }
}

Gradients read_all(Engine& engine) {
  Gradients all;
  for (const HeldTensor& tensor : engine.states().held(StateKind::gradient))
    all[tensor.name] = plain::read(engine, tensor.name, StateKind::gradient);
  return all;
}

/// Steps twice. Before the first step `change` may change the gradients, which come from the
/// micro-batches numbered `from` and on.
Stepped stepped(const Case& of, std::int64_t from, const std::function<void(Engine&)>& change) {
  std::vector<Stepped> found(static_cast<std::size_t>(of.world));
  plain::run(of.world, of.setup, [&](plain::Trainer& trainer, Communicator& communicator) {
    Engine& engine = trainer.engine();
    run_micro_batches(trainer, of, from);
    change(engine);
    Stepped& mine = found[static_cast<std::size_t>(communicator.rank())];
    mine.gradients = read_all(engine);
    const StepReport report = engine.step({.learning_rate = 0.01});
    EXPECT_EQ(report.traffic.of(Operation::all_reduce),
              engine.planned_axes().total().of(Operation::all_reduce));
    mine.norm = report.gradient_norm;
    mine.clipped = report.clipped;
    engine.states().check_replicas();
    run_micro_batches(trainer, of, 1000);  // the next norm is of its own gradients
    mine.norm += engine.step({.learning_rate = 0.01}).gradient_norm;
    engine.states().check_replicas();
    mine.hash = engine.states().hash();
  });
  for (const Stepped& rank : found) EXPECT_EQ(rank, found[0]);
  return found[0];
}

void write_all(Engine& engine, Gradients gradients) {
  for (auto& [name, values] : gradients)
    engine.states().write(name, StateKind::gradient, View::of(std::span(values)));
}

/// A step whose gradients were `target`'s from the start, and one that had others until they were
/// written.
void expect_as_from_the_start(const Case& of) {
  const Stepped target = stepped(of, 0, [](Engine&) {});
  EXPECT_TRUE(target.clipped);
  const Stepped written =
      stepped(of, 77, [&](Engine& engine) { write_all(engine, target.gradients); });
  EXPECT_EQ(written.gradients, target.gradients);
  EXPECT_EQ(written.norm, target.norm);
  EXPECT_EQ(written, target);
}

TEST(WrittenGradient, IsAsOneThatWasThatFromTheStart) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int world : {1, 2, 3}) {
      for (const DType compute : {DType::fp32, DType::bf16}) {
        SCOPED_TRACE(fmt::format("stage {} world {} {}", stage, world, name_of(compute)));
        expect_as_from_the_start(on(stage, world, compute));
      }
    }
  }
}

TEST(WrittenGradient, IsSoOnMeshesInOtherTypesMicroBatchesAndMemories) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(fmt::format("stage {}", stage));
    for (const MeshShape& mesh : {MeshShape{2, 2, 1}, MeshShape{1, 2, 2}}) {
      Case meshed = on(stage, 4);
      meshed.setup.mesh = mesh;
      meshed.setup.slicing = plain::odd_slices;
      expect_as_from_the_start(meshed);
    }
    Case fp32 = on(stage, 2, DType::bf16);
    fp32.setup.engine.gradient = DType::fp32;
    fp32.setup.accumulation_steps = 3;
    expect_as_from_the_start(fp32);
    Case apart = on(stage, 2);
    apart.setup.memory = MemorySpace::device;
    expect_as_from_the_start(apart);
  }
  Case boundary = on(1, 2);
  boundary.setup.engine.reduction = ReductionPolicy::boundary;
  boundary.setup.accumulation_steps = 2;
  expect_as_from_the_start(boundary);
}

TEST(WrittenGradient, LeavesTheOthersAndMayBeWrittenTwice) {
  for (int stage = 0; stage <= 3; ++stage) {
    const Case of = on(stage, 3);
    Gradients target = stepped(of, 0, [](Engine&) {}).gradients;
    std::ranges::fill(target["first.bias"], 0.25F);
    const auto change = [&](Engine& engine) {
      for (const float value : {9.0F, 0.25F}) {
        std::vector<float> values(13, value);
        engine.states().write("first.bias", StateKind::gradient, View::of(std::span(values)));
      }
    };
    const Stepped one = stepped(of, 0, change);
    EXPECT_EQ(one.gradients, target);
    EXPECT_EQ(one, stepped(of, 77, [&](Engine& engine) { write_all(engine, target); }));
  }
}

TEST(WrittenGradient, ChangedInPlaceIsFollowedAfterPublishing) {
  for (int stage = 0; stage <= 3; ++stage) {
    const Case of = on(stage, 3, DType::bf16);
    Gradients target = stepped(of, 0, [](Engine&) {}).gradients;
    for (auto& [name, values] : target) std::ranges::fill(values, 0.5F);
    const Stepped changed = stepped(of, 0, [](Engine& engine) {
      for (const HeldTensor& tensor : engine.states().held(StateKind::gradient)) {
        for (const StateView& view : tensor.views) {
          engine.states().host_access().write(view.values, [](std::int64_t, const View& values) {
            std::ranges::fill(values.as<bfloat16>(), to_bfloat16(0.5F));
          });
        }
      }
      engine.states().publish_gradients();
    });
    EXPECT_EQ(changed.gradients, target);
    EXPECT_EQ(changed, stepped(of, 77, [&](Engine& engine) { write_all(engine, target); }));
  }
}

TEST(WrittenGradient, ThatIsNotFiniteSkipsTheStepAndIsNamed) {
  for (int stage = 0; stage <= 3; ++stage) {
    const Case of = on(stage, 2);
    plain::run(of.world, of.setup, [&](plain::Trainer& trainer, Communicator&) {
      Engine& engine = trainer.engine();
      run_micro_batches(trainer, of, 0);
      std::vector<float> values(13, std::numeric_limits<float>::infinity());
      engine.states().write("first.bias", StateKind::gradient, View::of(std::span(values)));
      EXPECT_EQ(engine.step({.learning_rate = 0.01}).nonfinite, "first.bias");
      EXPECT_EQ(engine.states().steps_done(), 0);
    });
  }
}

TEST(WrittenGradient, IsRefusedWhereNoStepWouldUseIt) {
  Case of = on(0, 2);
  of.setup.accumulation_steps = 2;
  plain::run(of.world, of.setup, [&](plain::Trainer& trainer, Communicator& communicator) {
    Engine& engine = trainer.engine();
    std::vector<float> values(13, 1.0F);
    const auto refused = [&](int done) {
      const std::string when = fmt::format(
          "{} of 2 micro-batches are done; change a gradient after the last one's backward and "
          "before step()",
          done);
      EXPECT_THAT(error_of([&] {
                    engine.states().write("first.bias", StateKind::gradient,
                                          View::of(std::span(values)));
                  }),
                  HasSubstr(fmt::format("[rank {}] write: {}", communicator.rank(), when)));
      EXPECT_THAT(error_of([&] { engine.states().publish_gradients(); }),
                  HasSubstr("publish_gradients: " + when));
    };
    refused(0);
    trainer.forward();
    trainer.backward(0);
    refused(1);
    trainer.forward();
    trainer.backward(1);
    engine.states().write("first.bias", StateKind::gradient, View::of(std::span(values)));
    engine.step({.learning_rate = 0.01});
    refused(0);
  });
}

}  // namespace
}  // namespace zero
