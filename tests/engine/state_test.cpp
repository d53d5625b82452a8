// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/sign_of_life.h"
#include "device/host_access.h"
#include "tests/engine/plain.h"
#include "tests/errors.h"
#include "tests/scratch.h"
#include "tests/support/combinations.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::string> kNames = {"embedding.tokens", "first.weight",  "first.bias",
                                         "first.scale",      "second.weight", "second.bias",
                                         "single.value",     "single.empty",  "head.weight"};

plain::Setup setup(int stage, DType compute = DType::fp32, std::int64_t threshold = 0) {
  plain::Setup setup{plain::options(stage, compute), plain::odd_units(), 1};
  setup.engine.limits.persistence_threshold = threshold;
  return setup;
}

std::vector<float> ramp(std::size_t count, float from) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = from + static_cast<float>(i) / 256.0F;
  return values;
}

/// Runs `body` for every stage, some worlds and thresholds, and on a device that the host cannot
/// see.
void everywhere(const std::function<void(plain::Trainer&, Communicator&)>& body,
                DType compute = DType::fp32) {
  for (const auto& [stage, world, threshold] :
       testing::cases_of({3, 2, 1, 0}, {3, 8, 1}, {0, 20})) {
    SCOPED_TRACE(fmt::format("stage {} world {} threshold {}", stage, world, threshold));
    plain::run(world, setup(stage, compute, threshold), body);
  }
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(fmt::format("stage {}, memory apart", stage));
    plain::Setup apart = setup(stage, compute, 20);
    apart.memory = MemorySpace::device;
    plain::run(3, apart, body);
  }
}

TEST(State, StartsFromSeedNameAndPlaceAloneOnEveryStageAndWorld) {
  const std::vector<plain::UnitSpec> units = plain::odd_units();
  everywhere([&](plain::Trainer& trainer, Communicator&) {
    for (const plain::UnitSpec& unit : units) {
      for (const ParameterSpec& spec : unit.parameters) {
        const std::string name = unit.name + "." + spec.name;
        std::vector<float> expected(static_cast<std::size_t>(spec.count()));
        initialise(spec.init, 3, name, 0, expected);
        EXPECT_EQ(plain::read(trainer.engine(), name, StateKind::parameter), expected) << name;
      }
    }
  });
}

TEST(State, IsReadAsItWasWritten) {
  everywhere([](plain::Trainer& trainer, Communicator&) {
    Engine& engine = trainer.engine();
    for (const StateKind kind :
         {StateKind::parameter, StateKind::moment0, StateKind::moment1, StateKind::gradient}) {
      if (kind == StateKind::gradient) {  // there is one once a micro-batch is done
        trainer.forward();
        trainer.backward(0);
      }
      for (const std::string& name : kNames) {
        std::vector<float> values =
            ramp(plain::read(engine, name, kind).size(), static_cast<float>(kind) + 1.0F);
        engine.states().write(name, kind, View::of(std::span(values)));
        EXPECT_EQ(plain::read(engine, name, kind), values) << name;
      }
    }
  });
}

TEST(State, WrittenParametersReachComputeRounded) {
  everywhere(
      [](plain::Trainer& trainer, Communicator&) {
        std::vector<float> values = ramp(13, 1.0F);
        trainer.engine().states().write("first.bias", StateKind::parameter,
                                        View::of(std::span(values)));
        static_cast<void>(trainer.engine().forward(trainer.units()[0]));
        const ParameterLease lease = trainer.engine().forward(trainer.units()[1]);
        for (float& value : values) value = to_float(to_bfloat16(value));
        EXPECT_EQ(plain::seen(trainer.engine(), lease["bias"]), values);
      },
      DType::bf16);
}

TEST(State, OfGradientsIsTheSumOverRanks) {
  for (int stage = 0; stage <= 3; ++stage) {
    plain::run(2, setup(stage), [](plain::Trainer& trainer, Communicator& communicator) {
      Engine& engine = trainer.engine();
      trainer.forward();
      for (std::size_t unit = trainer.units().size(); unit-- > 0;) {
        const GradientLease lease = engine.backward(trainer.units()[unit]);
        if (unit != 2) continue;
        std::ranges::fill(lease.gradient("bias").as<float>(),
                          1.0F + static_cast<float>(communicator.rank()));
      }
      EXPECT_THAT(plain::read(engine, "second.bias", StateKind::gradient), ::testing::Each(3.0F));
      EXPECT_THAT(plain::read(engine, "second.weight", StateKind::gradient), ::testing::Each(0.0F));
    });
  }
}

TEST(State, PartsListEachElementOnceOverAllRanks) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int world : {1, 2, 7}) {
      std::mutex mutex;
      std::map<std::string, std::vector<int>> seen;
      plain::run(world, setup(stage), [&](plain::Trainer& trainer, Communicator&) {
        for (const StateKind kind :
             {StateKind::parameter, StateKind::moment0, StateKind::moment1, StateKind::gradient}) {
          const std::vector<HeldTensor> tensors = trainer.engine().states().held(kind);
          ASSERT_EQ(tensors.size(), kNames.size());
          const std::lock_guard lock(mutex);
          for (std::size_t i = 0; i < tensors.size(); ++i) {
            EXPECT_EQ(tensors[i].name, kNames[i]);
            EXPECT_EQ(tensors[i].kind, kind);
            std::int64_t count = 1;
            for (const std::int64_t dimension : tensors[i].shape) count *= dimension;
            std::vector<int>& times =
                seen[tensors[i].name + std::to_string(static_cast<int>(kind))];
            times.resize(static_cast<std::size_t>(count));
            for (const StateView& view : tensors[i].views) {
              for (std::int64_t e = 0; e < view.values.count(); ++e)
                ++times.at(static_cast<std::size_t>(view.begin + e));
            }
          }
        }
      });
      for (const auto& [name, times] : seen) EXPECT_THAT(times, ::testing::Each(1)) << name;
    }
  }
}

TEST(State, ChangedInPlaceReachesComputeThroughPublish) {
  everywhere([](plain::Trainer& trainer, Communicator&) {
    Engine& engine = trainer.engine();
    for (const HeldTensor& tensor : engine.states().held(StateKind::parameter)) {
      for (const StateView& view : tensor.views) {
        engine.states().host_access().write(view.values, [](std::int64_t, const View& values) {
          std::ranges::fill(values.as<float>(), 7.0F);
        });
      }
    }
    engine.states().publish_parameters();
    for (const UnitId unit : trainer.units()) {
      const ParameterLease lease = engine.forward(unit);
      EXPECT_THAT(plain::seen(engine, lease.at(0)), ::testing::Each(7.0F));
    }
  });
}

TEST(State, HashIsTheSameOnEveryStageWorldAndThreshold) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    std::mutex mutex;
    std::set<std::uint64_t> hashes;
    everywhere(
        [&](plain::Trainer& trainer, Communicator&) {
          std::vector<float> values = ramp(41 * 11, -0.5F);
          trainer.engine().states().write("second.weight", StateKind::moment0,
                                          View::of(std::span(values)));
          const std::uint64_t hash = trainer.engine().states().hash();
          const std::lock_guard lock(mutex);
          hashes.insert(hash);
        },
        compute);
    EXPECT_EQ(hashes.size(), 1U);
  }
}

TEST(State, HashAfterTrainingIsTheSameOnEveryStageAndThreshold) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    std::set<std::uint64_t> hashes;
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::int64_t threshold : {0, 20, 1'000'000})
        hashes.insert(plain::train(3, setup(stage, compute, threshold), 2));
    }
    EXPECT_EQ(hashes.size(), 1U);
  }
}

// A watchdog would take that of a large shard for an endless loop.
TEST(State, HashGivesSignsOfLife) {
  plain::run(2, setup(3), [](plain::Trainer& trainer, Communicator&) {
    const std::int64_t before = signs_of_life();
    static_cast<void>(trainer.engine().states().hash());
    EXPECT_GT(signs_of_life(), before);
  });
}

/// Checks that a pass told of ascending shares, and of all at the end.
void expect_whole_pass(const std::vector<std::pair<std::int64_t, std::int64_t>>& told) {
  ASSERT_GT(told.size(), 3U);
  EXPECT_TRUE(std::ranges::is_sorted(told));
  for (const auto& [done, all] : told) EXPECT_EQ(all, told.back().first);
}

TEST(State, InitialisingAndHashingTellHowFarTheyAre) {
  for (const Tier states : {Tier::device, Tier::file}) {
    const testing::Scratch scratch;
    plain::Setup told = setup(3);
    if (states == Tier::file) {
      told.engine.tiers.optimizer = Tier::file;
      told.engine.tiers.file.folder = scratch.path();
      told.engine.tiers.windows.buffer_elements = StateWindowOptions::kGrain;
    }
    local::run(2, [&](Communicator& communicator) {
      std::vector<std::pair<std::int64_t, std::int64_t>> initialised, hashed;
      const auto device = cpu::open();
      Engine engine(communicator, *device, told.engine);
      for (const plain::UnitSpec& unit : plain::odd_units()) {
        engine.add_unit(unit.name, unit.parameters);
      }
      engine.seal({.initialising = [&](std::int64_t done, std::int64_t all) {
        initialised.emplace_back(done, all);
      }});
      const std::uint64_t hash = engine.states().hash(
          [&](std::int64_t done, std::int64_t all) { hashed.emplace_back(done, all); });
      expect_whole_pass(initialised);
      expect_whole_pass(hashed);
      EXPECT_EQ(hash, engine.states().hash());
    });
  }
}

TEST(State, PublishingGivesSignsOfLife) {
  plain::run(1, setup(0), [](plain::Trainer& trainer, Communicator&) {
    const std::int64_t before = signs_of_life();
    trainer.engine().states().publish_parameters();
    EXPECT_GE(signs_of_life() - before, 2 * std::ssize(trainer.units())) << "units and pieces";
  });
}

TEST(State, HashChangesWithOneBitTheSeedANameAndAStep) {
  std::vector<std::uint64_t> hashes;
  const auto note = [&](const plain::Setup& setup,
                        const std::function<void(plain::Trainer&)>& body) {
    plain::run(2, setup, [&](plain::Trainer& trainer, Communicator& communicator) {
      body(trainer);
      const std::uint64_t hash = trainer.engine().states().hash();
      if (communicator.rank() == 0) hashes.push_back(hash);
    });
  };
  note(setup(3), [](plain::Trainer&) {});
  note(setup(3), [](plain::Trainer& trainer) { trainer.step(); });
  for (const StateKind kind : {StateKind::parameter, StateKind::moment0, StateKind::moment1}) {
    note(setup(3), [&](plain::Trainer& trainer) {
      std::vector<float> values = plain::read(trainer.engine(), "head.weight", kind);
      values[999] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[999]) ^ 1U);
      trainer.engine().states().write("head.weight", kind, View::of(std::span(values)));
    });
  }
  plain::Setup other = setup(3);
  other.engine.seed = 4;
  note(other, [](plain::Trainer&) {});
  // All zeros, so that only the name differs.
  for (const std::string_view name : {"one", "two"}) {
    plain::Setup named{plain::options(3), {{"unit", {{std::string(name), {5}}}}}, 1};
    note(named, [](plain::Trainer&) {});
  }
  EXPECT_EQ(std::set<std::uint64_t>(hashes.begin(), hashes.end()).size(), hashes.size());
}

TEST(State, HashSeesWhereAValueIs) {
  const auto hash_of = [](std::vector<float> values) {
    std::uint64_t hash = 0;
    local::run(1, [&](Communicator& communicator) {
      const std::unique_ptr<Device> device = cpu::open();
      plain::Trainer trainer(communicator, *device,
                             {plain::options(3), {{"unit", {{"w", {256}}}}}, 1});
      trainer.engine().states().write("unit.w", StateKind::parameter, View::of(std::span(values)));
      hash = trainer.engine().states().hash();
    });
    return hash;
  };
  std::vector<float> first(256, 0.0F);
  std::vector<float> second(256, 0.0F);
  first[0] = 1.0F;
  second[64] = 1.0F;  // the same block elsewhere
  EXPECT_NE(hash_of(first), hash_of(second));
}

TEST(State, NamesWhatCannotBeReadOrWritten) {
  plain::Setup sgd = setup(3);
  sgd.engine.optimizer.kind = OptimizerConfig::Kind::sgd;
  sgd.engine.optimizer.momentum = 0.9;
  sgd.units[1].parameters[2].trainable = false;
  plain::run(1, sgd, [](plain::Trainer& trainer, Communicator&) {
    Engine& engine = trainer.engine();
    std::vector<float> values(13);
    const View view = View::of(std::span(values));
    std::vector<bfloat16> halves(13);
    EXPECT_THAT(error_of([&] { engine.states().read("first.biass", StateKind::parameter, view); }),
                HasSubstr("[rank 0] there is no parameter \"first.biass\""));
    EXPECT_THAT(error_of([&] { engine.states().write("second.bias", StateKind::parameter, view); }),
                AllOf(HasSubstr("\"second.bias\" has 11 elements"), HasSubstr("found 13 fp32")));
    EXPECT_THAT(error_of([&] {
                  engine.states().read("first.bias", StateKind::parameter,
                                       View::of(std::span(halves)));
                }),
                HasSubstr("found 13 bf16"));
    EXPECT_THAT(error_of([&] { engine.states().read("first.bias", StateKind::moment1, view); }),
                HasSubstr("\"first.bias\": the optimizer keeps 1 moments"));
    EXPECT_THAT(error_of([&] { engine.states().write("first.scale", StateKind::gradient, view); }),
                HasSubstr("\"first.scale\" is frozen: it has no gradient and no optimizer states"));
    EXPECT_EQ(error_of([&] { engine.states().read("first.bias", StateKind::moment0, view); }),
              "no error");
    EXPECT_TRUE(engine.states().held(StateKind::moment1).empty());
  });
}

TEST(State, IsNotChangedByAWriteThatIsRefused) {
  plain::run(2, setup(3), [](plain::Trainer& trainer, Communicator&) {
    Engine& engine = trainer.engine();
    trainer.forward();
    std::vector<float> values(13, 5.0F);
    EXPECT_THAT(error_of([&] {
                  engine.states().write("first.bias", StateKind::parameter,
                                        View::of(std::span(values)));
                }),
                HasSubstr("only between optimizer steps"));
    EXPECT_THAT(plain::read(engine, "first.bias", StateKind::parameter), ::testing::Each(0.0F));
    trainer.backward(0);
    engine.step({.learning_rate = 0.01});
  });
}

}  // namespace
}  // namespace zero
