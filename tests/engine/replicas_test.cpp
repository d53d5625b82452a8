// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "base/host.h"
#include "device/host_access.h"
#include "tests/case_names.h"
#include "tests/engine/plain.h"
#include "tests/errors.h"
#include "tests/support/combinations.h"

namespace zero {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr StateKind kMaster = StateKind::parameter;

/// Element `element` of a tensor's state on this rank, or nothing where it is elsewhere.
View element_of(Engine& engine, std::string_view name, StateKind kind, std::int64_t element) {
  for (const HeldTensor& tensor : engine.states().held(kind)) {
    for (const StateView& view : tensor.views) {
      const std::int64_t at = element - view.begin;
      if (tensor.name == name && at >= 0 && at < view.values.count())
        return view.values.slice(at, 1);
    }
  }
  return {};
}

void flip(Engine& engine, const View& value) {
  const float other =
      std::bit_cast<float>(std::bit_cast<std::uint32_t>(plain::seen(engine, value)[0]) ^ 1U);
  engine.states().host_access().write(
      value, [&](std::int64_t, const View& at) { at.as<float>()[0] = other; });
}

/// Flips a bit of one element on the last rank that holds it, after a step. What check_replicas()
/// says on each rank, and the holders.
struct Flipped {
  std::vector<std::string> messages;
  std::set<int> holders;
};

Flipped flip_one(const plain::Setup& setup, std::string_view name, StateKind kind,
                 std::int64_t element) {
  const int ranks = setup.mesh.ranks();
  Flipped flipped{std::vector<std::string>(static_cast<std::size_t>(ranks)), {}};
  std::mutex mutex;
  plain::run(ranks, setup, [&](plain::Trainer& trainer, Communicator& communicator) {
    Engine& engine = trainer.engine();
    trainer.step();
    engine.states().check_replicas();
    const View value = element_of(engine, name, kind, element);
    {
      const std::lock_guard lock(mutex);
      if (!value.empty()) flipped.holders.insert(communicator.rank());
    }
    const std::unique_ptr<Device> device = cpu::open();
    communicator.barrier(device->communication(), {"all holders are known", {}});
    device->communication().synchronize();
    if (*flipped.holders.rbegin() == communicator.rank()) flip(engine, value);
    flipped.messages[static_cast<std::size_t>(communicator.rank())] =
        error_of([&] { engine.states().check_replicas(); });
  });
  return flipped;
}

std::string expected(const Flipped& flipped, std::string_view what, std::string_view name) {
  return fmt::format(
      "check_replicas: after step 1 the {} of \"{}\" on rank {} differ from those on rank {}, "
      "which must have the same bits; one of the two computed or kept wrong ones: start again from "
      "saved weights, and test the host of rank {}, {}, and that of rank {}, {}",
      what, name, *flipped.holders.rbegin(), *flipped.holders.begin(), *flipped.holders.rbegin(),
      host_name(), *flipped.holders.begin(), host_name());
}

class Copies : public ::testing::TestWithParam<std::tuple<int, DType>> {
 protected:
  static plain::Setup on(const MeshShape& mesh) {
    const auto& [stage, compute] = GetParam();
    return plain::sliced_setup(stage, mesh, compute);
  }
};
INSTANTIATE_TEST_SUITE_P(Stages, Copies,
                         ::testing::ValuesIn(testing::cases_of({3, 2, 1, 0},
                                                               {DType::bf16, DType::fp32})),
                         zero::testing::kCaseName);

TEST_P(Copies, OfReplicasAreComparedAndTheRankThatDiffersIsNamed) {
  for (const std::int64_t element : {0, 1004}) {
    const Flipped flipped = flip_one(on({2, 2, 1}), "head.weight", kMaster, element);
    EXPECT_EQ(flipped.holders.size(), 2U);
    EXPECT_THAT(flipped.messages,
                Each(HasSubstr(expected(flipped, "master values", "head.weight"))));
  }
  plain::Setup apart = on({2, 2, 1});
  apart.memory = MemorySpace::device;
  const Flipped flipped = flip_one(apart, "first.bias", StateKind::moment1, 3);
  EXPECT_THAT(flipped.messages, Each(HasSubstr(expected(flipped, "second moments", "first.bias"))));
}

/// Where whole copies are compared along the shard axis too, another pair may be named first.
TEST_P(Copies, AlongTheTensorAxisAreComparedToo) {
  const auto expect = [](const Flipped& flipped, std::string_view what, std::string_view name) {
    EXPECT_EQ(flipped.holders.size(), 2U);
    const int rank = *flipped.holders.rbegin();
    EXPECT_THAT(flipped.messages, Each(std::get<0>(GetParam()) == 3
                                           ? HasSubstr(expected(flipped, what, name))
                                           : HasSubstr(fmt::format("of \"{}\" on rank", name))));
    EXPECT_THAT(flipped.messages, Each(AnyOf(HasSubstr(fmt::format("on rank {} differ", rank)),
                                             HasSubstr(fmt::format("those on rank {},", rank)))));
  };
  for (const MeshShape& mesh : {MeshShape{1, 2, 2}, MeshShape{1, 3, 2}}) {
    const Flipped whole = flip_one(on(mesh), "single.value", StateKind::moment0, 0);
    expect(whole, "first moments", "single.value");
    for (const std::int64_t element : {0, 10}) {
      plain::Setup run = on(mesh);
      if (element == 10) run.memory = MemorySpace::device;
      const Flipped range = flip_one(run, "second.bias", kMaster, element);
      expect(range, "master values", "second.bias");
    }
  }
}

TEST(Copies, ThatAreOnlyOneAreNobodysToCompare) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    const Flipped flipped =
        flip_one(plain::sliced_setup(3, {1, 2, 2}, compute), "head.weight", kMaster, 7);
    EXPECT_EQ(flipped.holders.size(), 1U);
    EXPECT_THAT(flipped.messages, Each(std::string("no error")));
  }
}

TEST(Copies, OfWholeComputeParametersAreComparedAlongTheShardAxis) {
  for (const int stage : {0, 3}) {
    plain::Setup run = plain::sliced_setup(stage, {1, 3, 1}, DType::bf16);
    run.engine.limits.persistence_threshold = 20;  // biases stay whole
    std::vector<std::string> messages(3);
    plain::run(3, run, [&](plain::Trainer& trainer, Communicator& communicator) {
      Engine& engine = trainer.engine();
      trainer.step();
      static_cast<void>(engine.forward(trainer.units()[0]));
      {
        const ParameterLease lease = engine.forward(trainer.units()[1]);
        if (communicator.rank() == 2) lease["bias"].as<bfloat16>()[3] = to_bfloat16(40.0F);
      }
      messages[static_cast<std::size_t>(communicator.rank())] =
          error_of([&] { engine.states().check_replicas(); });
    });
    EXPECT_THAT(messages, Each(HasSubstr(
                              "the compute copies of \"first.bias\" on rank 2 differ from those on "
                              "rank 0")))
        << stage;
  }
}

TEST(Copies, AreComparedByStepEverySoManySteps) {
  plain::Setup run = plain::sliced_setup(3, {2, 1, 2}, DType::bf16);
  run.engine.replica_check_every = 2;
  std::vector<std::string> messages(4);
  plain::run(4, run, [&](plain::Trainer& trainer, Communicator& communicator) {
    const TrafficCounter first = trainer.step().traffic;
    EXPECT_EQ(trainer.step().traffic.total(), first.total());  // the check belongs to no step
    EXPECT_EQ(trainer.step().traffic.total(), first.total());
    const View value = element_of(trainer.engine(), "embedding.tokens", StateKind::moment0, 2);
    if (communicator.rank() == 2) value.as<float>()[0] += 1.0F;
    messages[static_cast<std::size_t>(communicator.rank())] = error_of([&] { trainer.step(); });
  });
  EXPECT_THAT(messages, Each(HasSubstr("check_replicas: after step 4 the")));
  EXPECT_THAT(messages, Each(HasSubstr("of \"embedding.tokens\" on rank 2 differ from those on "
                                       "rank 0")));
}

TEST(Copies, AreCheckedInARunOfAnyMeshWithoutAnError) {
  for (const MeshShape& mesh : {MeshShape{1, 1, 1}, MeshShape{2, 2, 2}, MeshShape{1, 2, 3}}) {
    for (int stage = 0; stage <= 3; ++stage) {
      plain::Setup run = plain::sliced_setup(stage, mesh, DType::bf16);
      run.engine.replica_check_every = 1;
      plain::train(mesh.ranks(), run, 3);
    }
  }
}

TEST(Copies, CannotBeCheckedEveryMinusOneSteps) {
  local::run(1, [](Communicator& communicator) {
    const std::unique_ptr<Device> device = cpu::open();
    EngineOptions options = plain::options(3);
    options.replica_check_every = -1;
    EXPECT_THAT(error_of([&] { const Engine engine(communicator, *device, options); }),
                HasSubstr("engine: replica_check_every is -1, expected a number of steps, or 0"));
  });
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Ownership, OfAPlanIsThatOfARunButForCopiesThatOthersHold) {
  const auto communicator = planning::communicator(0, 8, BackendKind::local);
  const auto device = planning::open();
  plain::Trainer trainer(*communicator, *device, plain::sliced_setup(3, {2, 2, 2}, DType::bf16));
  const std::vector<ParameterOwnership> list = trainer.engine().ownership();
  ASSERT_EQ(list.size(), 9U);
  EXPECT_EQ(list[1].name, "first.weight");
  EXPECT_EQ(list[1].local_shape, (std::vector<std::int64_t>{29, 6}));
  EXPECT_EQ(list[1].shard, "states, gradients, parameters over 2");
  EXPECT_EQ(list[5].tensor, "along 0 over 2");
  EXPECT_EQ(trainer.step().traffic.total(), trainer.engine().planned_axes().total().total());
}

TEST(Ownership, SaysOfEachParameterWhatEachAxisHolds) {
  const auto table = [](plain::Setup run) {
    run.engine.limits.persistence_threshold = 20;
    run.units[2].parameters[1].trainable = false;
    std::string text;
    plain::run(run.mesh.ranks(), run, [&](plain::Trainer& trainer, Communicator& communicator) {
      if (communicator.rank() == 0) text = ownership_table(trainer.engine().ownership());
    });
    return text;
  };
  const std::string shard = "states, gradients, parameters over 2";
  EXPECT_THAT(
      lines_of(table(plain::sliced_setup(3, {2, 2, 2}, DType::bf16))),
      ::testing::ElementsAre(
          "parameter         shape       on this rank  replicate  "
          "shard                                 tensor",
          "embedding.tokens  [31, 17]    [31, 8]       2 copies   " + shard + "  along 1 over 2",
          "first.weight      [29, 13]    [29, 6]       2 copies   " + shard + "  along 1 over 2",
          "first.bias        [13]        [6]           2 copies   states, gradients over 2"
          "              along 0 over 2",
          "first.scale       [13]        [6]           2 copies   states, gradients over 2"
          "              along 0 over 2",
          "second.weight     [41, 11]    [41, 6]       2 copies   " + shard + "  along 1 over 2",
          "second.bias       [11]        [11]          2 copies   2 copies"
          "                              along 0 over 2, some in copies",
          "single.value      []          []            2 copies   states, gradients over 2"
          "              2 copies",
          "single.empty      [0, 5]      [0, 5]        2 copies   states, gradients over 2"
          "              along 0 over 2",
          "head.weight       [3, 5, 67]  [3, 5, 34]    2 copies   " + shard + "  along 2 over 2"));
  EXPECT_THAT(
      lines_of(table({plain::options(1), plain::odd_units(), 1, {1, 2, 1}, {}})),
      ::testing::IsSupersetOf(
          {"first.weight      [29, 13]    [29, 13]      1 rank     states over 2  1 rank",
           "second.bias       [11]        [11]          1 rank     2 copies       1 rank"}));
}

}  // namespace
}  // namespace zero
