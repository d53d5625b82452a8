// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <tuple>

#include "optim/cpu/small_moments.h"
#include "tests/case_names.h"
#include "tests/engine/plain.h"
#include "tests/engine/snapshot.h"
#include "tests/errors.h"
#include "tests/support/combinations.h"

namespace zero {
namespace {

using plain::Snapshot;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kBatches = 12;  // of a step
constexpr int kBefore = 2;    // steps
constexpr int kAfter = 2;

struct Optimizer {
  std::string_view name;
  OptimizerConfig config;
  friend void PrintTo(const Optimizer& of, std::ostream* out) { *out << of.name; }
};
const std::initializer_list<Optimizer> kOptimizers = {
    {"adamw", {.kind = OptimizerConfig::Kind::adamw, .weight_decay = 0.1}},
    {"adam", {.kind = OptimizerConfig::Kind::adam}},
    {"momentum", {.kind = OptimizerConfig::Kind::sgd, .momentum = 0.9}},
    {"bf16_moments", {.weight_decay = 0.1, .moments = MomentFormat::bf16}},
    {"8bit_moments", {.weight_decay = 0.1, .moments = MomentFormat::eight_bit}},
    {"8bit_momentum",
     {.kind = OptimizerConfig::Kind::sgd, .momentum = 0.9, .moments = MomentFormat::eight_bit}}};

const Optimizer& optimizer_named(std::string_view name) {
  return *std::ranges::find(kOptimizers, name, &Optimizer::name);
}

plain::Setup setup(const MeshShape& mesh, int stage, DType compute, const Optimizer& optimizer) {
  plain::Setup setup{plain::options(stage, compute), plain::odd_units()};
  setup.units[1].parameters.push_back({"frozen", {9, 14}, init::normal(1.0F), false});
  setup.units.push_back({"still", {{"weight", {33, 3}, init::normal(1.0F), false}}});
  setup.accumulation_steps = kBatches / mesh.data_ranks();
  setup.mesh = mesh;
  setup.slicing = plain::odd_slices;
  setup.engine.optimizer = optimizer.config;
  setup.engine.limits.persistence_threshold = 30;  // small parameters stay whole
  return setup;
}

/// The norms of the last steps, and the hash behind them.
struct End {
  std::vector<double> norms;
  std::uint64_t hash = 0;
  friend bool operator==(const End&, const End&) = default;
};

/// Trains on from an engine's state; every rank must find the same.
void go_on(plain::Trainer& trainer, std::mutex& mutex, std::optional<End>& common) {
  End end;
  for (int i = 0; i < kAfter; ++i) {
    const StepReport report = trainer.step();
    EXPECT_EQ(report.step, kBefore + i + 1);
    end.norms.push_back(report.gradient_norm);
  }
  trainer.engine().states().check_replicas();
  end.hash = trainer.engine().states().hash();
  const std::lock_guard lock(mutex);
  if (!common) common = end;
  EXPECT_EQ(end, *common);
}

/// Trains, taking a snapshot on the way.
End train(const plain::Setup& setup, Snapshot& snapshot) {
  std::mutex mutex;
  std::optional<End> end;
  plain::run(setup.mesh.ranks(), setup, [&](plain::Trainer& trainer, Communicator&) {
    for (int i = 0; i < kBefore; ++i) trainer.step();
    snapshot.add(trainer.engine(), trainer.engine().device().transfer());
    go_on(trainer, mutex, end);
  });
  return *end;
}

/// Trains from a snapshot on.
End resume(const plain::Setup& setup, const Snapshot& snapshot) {
  std::mutex mutex;
  std::optional<End> end;
  plain::run(setup.mesh.ranks(), setup, [&](plain::Trainer& trainer, Communicator&) {
    if (setup.mesh.ranks() % 2 == 0) trainer.step();  // what is replaced need not be initial
    snapshot.restore(trainer.engine(), 57);
    EXPECT_EQ(trainer.engine().states().steps_done(), kBefore);
    trainer.resume_at(kBefore);
    go_on(trainer, mutex, end);
  });
  return *end;
}

/// Stage, dtype, optimizer.
class Restored : public ::testing::TestWithParam<std::tuple<int, DType, Optimizer>> {
 protected:
  static plain::Setup at(const MeshShape& mesh) {
    const auto& [stage, dtype, optimizer] = GetParam();
    return setup(mesh, stage, dtype, optimizer);
  }
};
INSTANTIATE_TEST_SUITE_P(
    Stages, Restored,
    ::testing::ValuesIn(testing::cases_of({3, 2, 1, 0}, {DType::bf16, DType::fp32}, kOptimizers)),
    [](const auto& given) {
      return fmt::format("stage{}_{}_{}", std::get<0>(given.param),
                         name_of(std::get<1>(given.param)), std::get<2>(given.param).name);
    });

TEST_P(Restored, StatesGoOnWithTheSameBitsOnEveryMesh) {
  for (const MeshShape& mesh :
       {MeshShape{1, 1, 1}, MeshShape{1, 2, 1}, MeshShape{1, 3, 1}, MeshShape{1, 4, 1},
        MeshShape{2, 2, 1}, MeshShape{1, 2, 2}, MeshShape{2, 1, 3}, MeshShape{2, 2, 2}}) {
    SCOPED_TRACE(plain::text(mesh));
    Snapshot snapshot;
    const End end = train(at(mesh), snapshot);
    for (const auto& [key, times] : snapshot.times()) EXPECT_THAT(times, Each(1)) << key.second;
    EXPECT_EQ(resume(at(mesh), snapshot), end);
  }
}

TEST_P(Restored, StatesOfAnotherStageAndWorldGoOnWithTheSameBits) {
  const int stage = std::get<0>(GetParam());
  Snapshot snapshot;
  const End end = train(at({1, 4, 1}), snapshot);
  for (const MeshShape& mesh : {MeshShape{1, 1, 1}, MeshShape{1, 2, 1}, MeshShape{2, 2, 1}}) {
    SCOPED_TRACE(plain::text(mesh));
    plain::Setup other = at(mesh);
    other.engine.stage = 3 - stage;
    EXPECT_EQ(resume(other, snapshot), end);
  }
  Snapshot sliced;
  const End sliced_end = train(at({1, 2, 2}), sliced);
  plain::Setup other = at({2, 1, 2});
  other.engine.stage = 3 - stage;
  EXPECT_EQ(resume(other, sliced), sliced_end);
}

TEST(Restored, StatesAreTheSameIfMemoryIsApart) {
  using Case = std::pair<int, std::string_view>;
  for (const auto& [stage, optimizer] :
       {Case(0, "adamw"), Case(3, "adamw"), Case(2, "bf16_moments"), Case(0, "8bit_moments"),
        Case(3, "8bit_moments")}) {
    SCOPED_TRACE(fmt::format("stage {} {}", stage, optimizer));
    plain::Setup run = setup({1, 2, 2}, stage, DType::bf16, optimizer_named(optimizer));
    Snapshot expected;
    const End end = train(run, expected);
    run.memory = MemorySpace::device;
    Snapshot snapshot;
    EXPECT_EQ(train(run, snapshot), end);
    EXPECT_TRUE(snapshot.values() == expected.values());
    EXPECT_EQ(resume(run, snapshot), end);
  }
}

/// Two ranks hold the last of three rows: as their second, behind a row of `width` elements.
plain::Setup copied_row(std::int64_t width) {
  plain::Setup run{plain::options(3), {{"u", {{"w", {3, width}, init::normal(1.0F)}}}}};
  run.engine.optimizer.moments = MomentFormat::eight_bit;
  run.mesh = {1, 2, 2};
  run.slicing = [](const ParameterSpec& whole, int rank, int /*ranks*/) {
    return std::optional(TensorSlice{whole.shape, 0, {{rank, 1, 0}, {2, 1, rank}}});
  };
  return run;
}

TEST(CodedMoments, OfCopiesAreEqualIfTheyFillBlocksAndRefusedIfNot) {
  plain::run(4, copied_row(512), [](plain::Trainer& trainer, Communicator&) {
    for (int i = 0; i < 3; ++i) trainer.step();
    trainer.engine().states().check_replicas();
  });
  EXPECT_THAT(error_of([] { plain::run(4, copied_row(40), [](auto&, auto&) {}); }),
              HasSubstr("seal: indices 2 to 2 along dimension 0 of \"u.w\" [3, 40] are held by 2 "
                        "ranks of the tensor axis, whose blocks of 256 elements of 8-bit moments "
                        "would differ"));
}

TEST(CodedMoments, SetInAnyPiecesAreThoseSetAtOnce) {
  const std::int64_t count = 31 * 17;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i % 7) * (i % 2 == 0 ? 1e-3F : -1.0F) + static_cast<float>(i);
  const View all = View::of(std::span(values));
  for (const MemorySpace memory : {MemorySpace::host, MemorySpace::device}) {
    plain::Setup run{plain::options(3), {{"u", {{"w", {31, 17}, init::normal(1.0F)}}}}};
    run.engine.optimizer.moments = MomentFormat::eight_bit;
    run.memory = memory;
    plain::run(2, run, [&](plain::Trainer& trainer, Communicator&) {
      Engine& engine = trainer.engine();
      engine.states().write("u.w", StateKind::moment0, all);
      const std::uint64_t once = engine.states().hash();
      for (const std::int64_t length : {1, 100, 255, 256, 300}) {
        engine.states().initialise();
        EXPECT_NE(engine.states().hash(), once);
        const LogicalTensor tensor = engine.states().tensors(StateKind::moment0)[0];
        for (std::int64_t at = (count - 1) / length * length; at >= 0; at -= length)
          engine.states().set(tensor, at, all.slice(at, std::min(length, count - at)));
        EXPECT_EQ(engine.states().hash(), once) << "pieces of " << length;
      }
    });
  }
}

TEST(CodedMoments, TakenFromARunInFp32AreThoseEncoded) {
  plain::Setup run{plain::options(3), {{"u", {{"w", {31, 17}, init::normal(1.0F)}}}}};
  constexpr std::size_t kCount = std::size_t{31} * 17;
  const std::array kinds = {StateKind::moment0, StateKind::moment1};
  std::array<std::vector<float>, 2> real;
  std::array<std::vector<float>, 2> expected;
  const auto read = [&](Engine& engine, std::size_t m) {
    std::vector<float> values(kCount);
    engine.states().read("u.w", kinds[m], View::of(std::span(values)));
    return values;
  };
  plain::run(1, run, [&](plain::Trainer& trainer, Communicator&) {
    for (int i = 0; i < 3; ++i) trainer.step();
    for (std::size_t m = 0; m < 2; ++m) real[m] = read(trainer.engine(), m);
  });
  for (std::size_t m = 0; m < 2; ++m) {
    std::vector<std::uint8_t> codes(kCount);
    std::array<float, 3> scales{};
    expected[m].resize(kCount);
    const CodedMoment coded{static_cast<int>(m), View::of(std::span(codes)),
                            View::of(std::span<float>(scales))};
    cpu::encode_moment(real[m].data(), coded);
    cpu::decode_moment(coded, expected[m].data());
    ASSERT_NE(expected[m], real[m]);
  }
  run.engine.optimizer.moments = MomentFormat::eight_bit;
  plain::run(2, run, [&](plain::Trainer& trainer, Communicator&) {
    for (std::size_t m = 0; m < 2; ++m) {
      std::vector<float> values = real[m];
      trainer.engine().states().write("u.w", kinds[m], View::of(std::span(values)));
      EXPECT_EQ(read(trainer.engine(), m), expected[m]);
    }
  });
  run.engine.optimizer.moments = MomentFormat::fp32;
  plain::run(2, run, [&](plain::Trainer& trainer, Communicator&) {
    for (std::size_t m = 0; m < 2; ++m) {
      std::vector<float> values = expected[m];
      trainer.engine().states().write("u.w", kinds[m], View::of(std::span(values)));
      EXPECT_EQ(read(trainer.engine(), m), expected[m]);
    }
  });
}

TEST(Restored, StatesAreInitialAgainOnRequest) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const DType compute : {DType::fp32, DType::bf16}) {
      const plain::Setup run =
          setup({1, 2, 2}, stage, compute,
                optimizer_named(compute == DType::bf16 ? "8bit_moments" : "adamw"));
      plain::run(4, run, [&](plain::Trainer& trainer, Communicator&) {
        Engine& engine = trainer.engine();
        const std::uint64_t initial = engine.states().hash();
        std::vector<double> norms;
        for (int i = 0; i < 2; ++i) norms.push_back(trainer.step().gradient_norm);
        const std::uint64_t trained = engine.states().hash();
        EXPECT_NE(trained, initial);
        std::vector<float> garbage(33 * 3, 7.0F);
        engine.states().write("still.weight", StateKind::parameter, View::of(std::span(garbage)));
        engine.states().initialise();
        EXPECT_EQ(engine.states().hash(), initial);
        EXPECT_EQ(engine.states().steps_done(), 0);
        trainer.resume_at(0);
        for (const double norm : norms) EXPECT_EQ(trainer.step().gradient_norm, norm);
        EXPECT_EQ(engine.states().hash(), trained);
        engine.states().check_replicas();
      });
    }
  }
}

TEST(Restored, StepCountsContainSkippedSteps) {
  plain::run(2, {plain::options(2)}, [](plain::Trainer& trainer, Communicator&) {
    Engine& engine = trainer.engine();
    engine.states().restore(41, 2);
    EXPECT_EQ(engine.states().steps_done(), 41);
    EXPECT_EQ(engine.states().steps_skipped(), 2);
    EXPECT_EQ(trainer.step().step, 44);
    EXPECT_EQ(engine.states().steps_done(), 42);
    EXPECT_EQ(engine.states().steps_skipped(), 2);
  });
}

TEST(Restored, TrafficOfTheNextStepIsAsPlanned) {
  for (int stage = 0; stage <= 3; ++stage) {
    plain::run(3, {plain::options(stage, DType::bf16)},
               [](plain::Trainer& trainer, Communicator& communicator) {
                 Engine& engine = trainer.engine();
                 const TrafficCounter plan = engine.planned_axes().total();
                 trainer.step();
                 Snapshot snapshot;
                 snapshot.add(engine, engine.device().compute());
                 engine.states().initialise();
                 communicator.barrier(engine.device().communication(), {"test", {}});
                 EXPECT_EQ(trainer.step().traffic.of(Operation::all_gather),
                           plan.of(Operation::all_gather));
                 engine.states().publish_parameters();
                 engine.states().restore(1);
                 EXPECT_EQ(trainer.step().traffic.of(Operation::all_gather),
                           plan.of(Operation::all_gather));
               });
  }
}

TEST(Tensors, ListStoredTypesAndAreEqualOnAllRanks) {
  const plain::Setup run = setup({1, 2, 2}, 3, DType::bf16, optimizer_named("momentum"));
  std::mutex mutex;
  std::vector<std::vector<std::string>> lists;
  plain::run(4, run, [&](plain::Trainer& trainer, Communicator&) {
    const Engine& engine = trainer.engine();
    std::vector<std::string> list;
    for (const StateKind kind :
         {StateKind::parameter, StateKind::moment0, StateKind::moment1, StateKind::gradient}) {
      for (const LogicalTensor& t : engine.states().tensors(kind)) {
        list.push_back(fmt::format("{} {} {} {} {}", static_cast<int>(kind), t.name,
                                   plain::elements_of(t), t.trainable, name_of(t.dtype)));
      }
    }
    const std::lock_guard lock(mutex);
    lists.push_back(list);
  });
  EXPECT_THAT(lists, Each(lists.front()));
  EXPECT_THAT(lists.front(), ::testing::Contains("0 first.frozen 126 false bf16"));
  EXPECT_THAT(lists.front(), ::testing::Contains("0 first.weight 377 true fp32"));
  EXPECT_THAT(lists.front(), ::testing::Contains("1 first.weight 377 true fp32"));
  EXPECT_THAT(lists.front(), ::testing::Contains("3 first.weight 377 true bf16"));
  EXPECT_THAT(lists.front(), Each(::testing::Not(::testing::StartsWith("2 "))));  // one moment
}

TEST(Tensors, CallsThatMakeNoSenseAreRefused) {
  plain::Setup run = setup({1, 1, 1}, 3, DType::bf16, optimizer_named("adamw"));
  plain::run(1, run, [](plain::Trainer& trainer, Communicator&) {
    Engine& engine = trainer.engine();
    Stream& compute = engine.device().compute();
    std::vector<float> floats(600);
    const View values = View::of(std::span(floats));
    const LogicalTensor tensor = engine.states().tensors(StateKind::parameter)[1];  // first.weight
    const auto refused = [](const auto& call, const std::string& why) {
      EXPECT_THAT(error_of(call), HasSubstr(why));
    };
    LogicalTensor unknown = tensor;
    unknown.unit = 17;
    refused([&] { engine.states().runs(unknown); },
            "\"first.weight\" (parameter 0 of unit 17) is no such tensor of this engine; take one "
            "that EngineStates::tensors() lists");
    unknown = tensor;
    unknown.name = "w";
    refused([&] { engine.states().copy(unknown, 0, values, compute); },
            "\"w\" (parameter 0 of unit");
    unknown = engine.states().tensors(StateKind::parameter)[4];  // first.frozen
    unknown.kind = StateKind::moment0;
    refused([&] { engine.states().set(unknown, 0, values); },
            "\"first.frozen\" (parameter 3 of unit");
    refused([&] { engine.states().copy(tensor, 0, values, compute); },
            "elements [0, 600) of \"first.weight\" are not in one run of this rank's");
    refused([&] { engine.states().copy(tensor, -1, values.slice(0, 5), compute); },
            "elements [-1, 4) of \"first.weight\"");
    std::vector<double> doubles(5);
    refused([&] { engine.states().copy(tensor, 0, View::of(std::span(doubles)), compute); },
            "\"first.weight\" is copied to fp64, expected fp32");
    refused([&] { engine.states().set(tensor, 0, View::of(std::span(doubles))); },
            "expected values in fp32 for some of them, found 5 in fp64 from element 0 on");
    refused([&] { engine.states().set(tensor, 370, values.slice(0, 8)); },
            "\"first.weight\" has 377 elements; expected values in fp32 for some of them, found 8 "
            "in fp32 from element 370 on");
    refused([&] { engine.states().set(tensor, -1, values.slice(0, 8)); }, "from element -1 on");
    refused(
        [&] { engine.states().set(engine.states().tensors(StateKind::gradient)[0], 0, values); },
        "is a gradient; use write()");
    refused([&] { engine.states().restore(-1); }, "restore: -1 steps done and 0 skipped");
    refused([&] { engine.states().restore(1, -2); }, "restore: 1 steps done and -2 skipped");
    trainer.forward();
    for (const auto& [name, call] : std::vector<std::pair<std::string, std::function<void()>>>{
             {"set", [&] { engine.states().set(tensor, 0, values.slice(0, 1)); }},
             {"restore", [&] { engine.states().restore(1); }},
             {"initialise", [&] { engine.states().initialise(); }}})
      refused(call, name + ": only between optimizer steps");
  });
}

}  // namespace
}  // namespace zero
