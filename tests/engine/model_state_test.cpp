// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/model_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>

#include "collectives/backends.h"
#include "device/device.h"
#include "engine/replica_check.h"
#include "engine/sharding.h"
#include "tests/errors.h"

// Model states without an engine: units whose storage a strategy gave them.
namespace zero {
namespace {

using ::testing::HasSubstr;

constexpr int kMoments = 2;

class States {
 public:
  States(Communicator& communicator, const MeshShape& shape, int stage)
      : given_(communicator, shape),
        mesh_(given_),
        options_{.stage = stage},
        sharding_(make_sharding({mesh_.axis(Axis::shard), *device_, options_, DType::fp32, kMoments,
                                 1, mesh_.axis(Axis::replicate)})) {
    units_.push_back(Unit::make("a", {{"w", {7, 19}}, {"none", {0}}, {"b", {5}}}, shape.tensor));
    units_.push_back(Unit::make(
        "z", {{"w", {300}}, {.name = "frozen", .shape = {70}, .trainable = false}}, shape.tensor));
    for (Unit& unit : units_) {
      unit.lay_out(shape.shard, 0);
      for (Segment& segment : unit.segments) sharding_->allocate(segment, unit.name);
    }
    state_.emplace(ModelState::Context{units_, mesh_, *device_, access_, coded_, kMoments});
  }

  const std::vector<Unit>& units() const { return units_; }
  const ModelState& state() const { return *state_; }
  HostAccess& host_access() { return access_.memory(); }

  /// Gives a state the values first, first + 1, ...
  void fill(std::string_view name, StateKind kind, float first) {
    std::vector<float> values(300);
    std::iota(values.begin(), values.end(), first);
    const View all = View::of(std::span(values)).slice(0, count(name));
    const ModelState::Parameter at = state_->find(name, kind, all);
    state_->set(*at.unit, at.index, kind, 0, all);
  }
  std::vector<float> read(std::string_view name, StateKind kind) {
    std::vector<float> values(static_cast<std::size_t>(count(name)));
    const ModelState::Parameter at = state_->find(name, kind, View::of(std::span(values)));
    state_->read(*at.unit, at.index, kind, View::of(std::span(values)));
    return values;
  }

 private:
  static std::int64_t count(std::string_view name) {
    return name == "a.w" ? 133 : name == "a.b" ? 5 : name == "z.w" ? 300 : 70;
  }

  std::unique_ptr<Device> device_ = cpu::open();
  Mesh given_;
  CountedMesh mesh_;
  EngineOptions options_;
  std::unique_ptr<Sharding> sharding_;
  std::vector<Unit> units_;
  StateHome file_{*device_, {}};
  StateAccess access_{*device_, file_};
  std::unique_ptr<Optimizer> optimizer_ = make_optimizer({}, *device_);
  CodedMoments coded_{*device_, access_, *optimizer_};
  std::optional<ModelState> state_;
};

void with_states(const MeshShape& shape, int stage,
                 const std::function<void(States&, Communicator&)>& body) {
  local::run(shape.ranks(), [&](Communicator& communicator) {
    States states(communicator, shape, stage);
    body(states, communicator);
  });
}

TEST(ModelState, VisitsEachElementOfEachShardOnceInOrder) {
  for (const int world : {1, 2, 3, 8}) {
    std::mutex mutex;
    std::multiset<std::int64_t> seen;
    with_states({1, world, 1}, 3, [&](States& states, Communicator&) {
      states.fill("z.w", StateKind::moment1, 1000);
      std::int64_t last = -1;
      states.state().visit(states.units()[1], 0, StateKind::moment1,
                           [&](const TensorSlice::Run& run, const View& values) {
                             EXPECT_GT(run.logical, last);
                             EXPECT_EQ(values.count(), run.count);
                             const std::lock_guard lock(mutex);
                             for (std::int64_t i = 0; i < run.count; ++i) {
                               last = run.logical + i;
                               seen.insert(last);
                               EXPECT_EQ(values.as<float>()[static_cast<std::size_t>(i)],
                                         static_cast<float>(1000 + last));
                             }
                           });
    });
    std::multiset<std::int64_t> expected;
    for (std::int64_t i = 0; i < 300; ++i) expected.insert(i);
    EXPECT_EQ(seen, expected) << "world " << world;
  }
}

TEST(ModelState, ReadsWhatWasWrittenAtEveryStageAndWorld) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int world : {1, 3}) {
      with_states({1, world, 1}, stage, [&](States& states, Communicator&) {
        states.fill("a.w", StateKind::parameter, 5);
        states.fill("a.b", StateKind::moment0, -3);
        states.fill("z.frozen", StateKind::parameter, 9);
        EXPECT_EQ(states.read("a.b", StateKind::moment0), (std::vector<float>{-3, -2, -1, 0, 1}));
        EXPECT_EQ(states.read("a.w", StateKind::parameter).back(), 5 + 132);
        EXPECT_EQ(states.read("z.frozen", StateKind::parameter).back(), 9 + 69);
        EXPECT_EQ(states.read("a.w", StateKind::moment0), std::vector<float>(133));
      });
    }
  }
}

TEST(ModelState, HashIsOneForEqualStatesAndAnotherForOneOtherElement) {
  std::mutex mutex;
  std::set<std::uint64_t> equal;
  std::set<std::uint64_t> other;
  for (const int stage : {0, 1, 2, 3}) {
    for (const MeshShape& shape : {MeshShape{1, 1, 1}, MeshShape{1, 3, 1}, MeshShape{2, 2, 1}}) {
      with_states(shape, stage, [&](States& states, Communicator&) {
        states.fill("a.w", StateKind::parameter, 5);
        const std::uint64_t before = states.state().hash({});
        states.fill("a.b", StateKind::moment1, 1);
        const std::uint64_t after = states.state().hash({});
        const std::lock_guard lock(mutex);
        equal.insert(before);
        other.insert(after);
      });
    }
  }
  EXPECT_EQ(equal.size(), 1U);
  EXPECT_EQ(other.size(), 1U);
  EXPECT_NE(equal, other);
}

TEST(ReplicaCheck, NamesTheReplicaWhoseMomentDiffers) {
  with_states({2, 2, 1}, 2, [](States& states, Communicator& communicator) {
    const ReplicaCheck check(states.state(), DType::fp32);
    states.fill("z.w", StateKind::moment0, 1);
    EXPECT_EQ(error_of([&] { check.run(7); }), "no error");
    if (communicator.rank() == 3) states.fill("z.w", StateKind::moment0, 2);
    const std::string message = error_of([&] { check.run(7); });
    EXPECT_THAT(message, HasSubstr("after step 7 the first moments of \"z.w\" on rank 3 differ "
                                   "from those on rank 1"));
  });
}

}  // namespace
}  // namespace zero
