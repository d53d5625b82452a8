// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/host_device.h"
#include "tests/engine/plain.h"
#include "tests/errors.h"

// Work that leases repeat, on a device in host memory that captures it.
namespace zero {
namespace {

using ::testing::HasSubstr;

class Recorded final : public CapturedGraph {
 public:
  std::int64_t nodes() const override { return static_cast<std::int64_t>(works.size()); }
  std::string_view refusal() const override { return {}; }

  bool seen = false;
  bool complete = false;
  std::vector<Stream::Work> works;
};

/// Runs work at once; the second body of a repeat is called twice, the first time in vain.
class RecordingStream final : public Stream {
 public:
  bool captures() const override { return true; }
  Event record() override { return {}; }
  void synchronize() override {}
  double waited_seconds() const override { return 0; }

  std::vector<std::string> names;

 private:
  void do_submit(std::string_view /*what*/, Work work) override {
    if (works_ == nullptr) return work();
    works_->push_back(std::move(work));
  }
  void do_repeat(std::unique_ptr<CapturedGraph>& graph, std::string_view what,
                 CapturedGraph::Check check, const Work& body) override {
    names.emplace_back(what);
    if (graph == nullptr) graph = std::make_unique<Recorded>();
    auto& mine = static_cast<Recorded&>(*graph);
    if (!std::exchange(mine.seen, true)) return body();
    if (mine.complete && check == CapturedGraph::Check::always) {
      EXPECT_EQ(works_of(body).size(), mine.works.size()) << what;
    }
    if (!mine.complete) {
      works_of(body);
      mine.works = works_of(body);
      mine.complete = true;
    }
    for (const Work& work : mine.works) work();
  }
  void do_wait(const Event& event) override { event.synchronize(); }

  std::vector<Work> works_of(const Work& body) {
    std::vector<Work> works;
    works_ = &works;
    body();
    works_ = nullptr;
    return works;
  }

  std::vector<Work>* works_ = nullptr;  // that are recorded and not run
};

using RecordingDevice = testing::HostDevice<RecordingStream>;

/// Which gradients of a unit its backward asks for, given how many there are, the use among the
/// unit's (0, 1) and the micro-batch.
using Asks = std::function<bool(int index, int use, int micro_batch)>;

struct Repeated {
  EngineOptions engine{};
  int accumulation = 3;
  bool twice = false;  ///< every unit is used twice in backward
  Asks asks = [](int, int, int) { return true; };
};

EngineOptions options(int stage) {
  EngineOptions options = plain::options(stage);
  options.checked = false;
  return options;
}

/// Trains by repeated passes: gradients are made of parameters and of a number that lies in memory.
class Repeater {
 public:
  Repeater(Communicator& ranks, RecordingDevice& device, const Repeated& setup)
      : setup_(setup), ranks_(ranks), device_(device), engine_(ranks, device, setup.engine) {
    for (const plain::UnitSpec& unit : plain::odd_units()) {
      units_.push_back(engine_.add_unit(unit.name, unit.parameters));
      parameters_.push_back(static_cast<int>(unit.parameters.size()));
    }
    SealOptions seal{.order = {}, .accumulation_steps = setup.accumulation};
    for (const UnitId unit : units_) seal.order.push_back({unit, Phase::forward});
    for (std::size_t i = units_.size(); i-- > 0;) {
      for (int use = 0; use <= (setup.twice ? 1 : 0); ++use)
        seal.order.push_back({units_[i], Phase::backward});
    }
    engine_.seal(seal);
  }

  void forward() {
    for (std::size_t i = 0; i < units_.size(); ++i) {
      ParameterLease lease = engine_.forward(units_[i]);
      lease.repeat([&] {
        ++bodies;
        for (int index = 0; index < parameters_[i]; ++index) add_to_sum(lease.at(index));
      });
    }
  }
  void train() {
    number_ = static_cast<float>(++micro_batch_ * ranks_.size() + ranks_.rank());
    forward();
    for (std::size_t i = units_.size(); i-- > 0;) {
      for (int use = 0; use <= (setup_.twice ? 1 : 0); ++use) backward(i, use);
    }
  }
  void step() {
    for (int j = 0; j < setup_.accumulation; ++j) train();
    engine_.step({.learning_rate = 0.01});
  }
  Engine& engine() { return engine_; }

  int bodies = 0;
  float sum = 0;  // of all parameters that forward passes have seen

 private:
  void add_to_sum(const View& values) {
    device_.compute().submit("sum", [this, values] {
      for (const float value : values.as<const float>()) sum += value;
    });
  }
  /// A lease repeats twice: parameters with an even index, and those with an odd one. The first of
  /// two leases does not: it may ask for others every time.
  void backward(std::size_t unit, int use) {
    GradientLease lease = engine_.backward(units_[unit]);
    const bool repeats = !setup_.twice || use == 1;
    for (const int odd : {0, 1}) {
      const auto body = [&] {
        ++bodies;
        for (int index = odd; index < parameters_[unit]; index += 2) {
          if (setup_.asks(index, use, micro_batch_)) write(lease, index);
        }
      };
      repeats ? lease.repeat(body) : body();
    }
  }
  void write(GradientLease& lease, int index) {
    device_.compute().submit(
        "gradient", [this, gradient = lease.gradient(index), parameter = lease.parameter(index),
                     add = lease.accumulates()] {
          const auto from = parameter.as<const float>();
          const auto to = gradient.as<float>();
          for (std::size_t i = 0; i < to.size(); ++i) {
            to[i] = (add ? to[i] : 0) + 0.125F * from[i] + number_ * static_cast<float>(i % 7);
          }
        });
  }

  Repeated setup_;
  Communicator& ranks_;
  RecordingDevice& device_;
  Engine engine_;
  std::vector<UnitId> units_;
  std::vector<int> parameters_;
  int micro_batch_ = 0;
  float number_ = 0;
};

struct Result {
  std::uint64_t state = 0;
  float sum = 0;
  int bodies = 0;
  CaptureCounts captured;
};

Result train(int world, const Repeated& setup) {
  constexpr int kSteps = 3;
  Result result;
  local::run(world, [&](Communicator& ranks) {
    RecordingDevice device;
    Repeater repeater(ranks, device, setup);
    for (int i = 0; i < kSteps; ++i) {
      repeater.step();
      repeater.engine().begin_evaluation();
      repeater.forward();
      repeater.engine().end_evaluation();
    }
    const std::uint64_t state = repeater.engine().states().hash();
    if (ranks.rank() == 0) {
      result = {state, repeater.sum, repeater.bodies, repeater.engine().captured_graphs()};
    }
  });
  return result;
}

Result by_hand(int world, Repeated setup) {
  setup.engine.graphs = false;
  return train(world, setup);
}

constexpr int kUnits = 5;

TEST(CapturedLeases, GiveTheSameBits) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int world : {1, 2}) {
      const Repeated setup{.engine = options(stage)};
      const Result expected = by_hand(world, setup);
      const Result captured = train(world, setup);
      EXPECT_EQ(captured.state, expected.state) << "stage " << stage << ", " << world << " ranks";
      EXPECT_EQ(captured.sum, expected.sum) << "stage " << stage << ", " << world << " ranks";
      EXPECT_EQ(expected.bodies, 9 * 3 * kUnits + 3 * kUnits);
      // Of the second call one is in vain; evaluations have a schedule of their own.
      EXPECT_EQ(captured.bodies, 3 * (3 + 1) * kUnits);
      EXPECT_EQ(expected.captured.graphs, 0);
      // Four of the odd halves of units have nothing to submit: there is nothing to capture.
      EXPECT_EQ(captured.captured.graphs, 4 * kUnits - 2);
      EXPECT_EQ(captured.captured.nodes, 3 * 9);
    }
  }
}

TEST(CapturedLeases, WithGradientsThatNobodyAsksForGiveTheSameBits) {
  for (const int stage : {0, 3}) {
    Repeated setup{.engine = options(stage),
                   .asks = [](int index, int, int) { return index != 0; }};
    EXPECT_EQ(train(2, setup).state, by_hand(2, setup).state) << "stage " << stage;
    setup.asks = [](int index, int, int) { return index == 0; };
    EXPECT_EQ(train(2, setup).state, by_hand(2, setup).state) << "stage " << stage;
  }
}

// The second use of a unit zeroes what the first has not asked for.
TEST(CapturedLeases, BeginAnewIfOtherGradientsWereAskedForBefore) {
  for (const int stage : {1, 3}) {
    Repeated setup{.engine = options(stage), .twice = true};
    EXPECT_EQ(train(2, setup).state, by_hand(2, setup).state) << "stage " << stage;
    setup.asks = [](int index, int use, int micro_batch) {
      return use == 1 || (index + micro_batch / 4) % 2 == 0;
    };
    const Result expected = by_hand(2, setup);
    EXPECT_EQ(train(2, setup).state, expected.state) << "stage " << stage;
  }
}

TEST(CapturedLeases, InCheckedModeCallTheirBodiesEveryTime) {
  Repeated setup{.engine = options(3)};
  const Result expected = by_hand(2, setup);
  setup.engine.checked = true;
  const Result checked = train(2, setup);
  EXPECT_EQ(checked.sum, expected.sum);
  EXPECT_EQ(checked.state, expected.state);
  EXPECT_GE(checked.bodies, expected.bodies);
}

TEST(CapturedLeases, AreDiscardedBetweenLeases) {
  local::run(1, [](Communicator& rank) {
    RecordingDevice device;
    Repeater repeater(rank, device, {.engine = options(3)});
    repeater.step();
    EXPECT_GT(repeater.engine().captured_graphs().graphs, 0);
    const int before = repeater.bodies;
    repeater.step();
    EXPECT_EQ(repeater.bodies, before);
    repeater.engine().discard_graphs();
    EXPECT_EQ(repeater.engine().captured_graphs().graphs, 0);
    repeater.step();
    EXPECT_EQ(repeater.bodies, 2 * before);
    EXPECT_THAT(device.compute().names, ::testing::Contains("embedding forward"));
    EXPECT_THAT(device.compute().names, ::testing::Contains("head backward"));
    const ParameterLease lease = repeater.engine().forward({0});
    EXPECT_THAT(error_of([&] { repeater.engine().discard_graphs(); }),
                HasSubstr("discard_graphs: a lease has not ended"));
  });
}

}  // namespace
}  // namespace zero
