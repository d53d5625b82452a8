// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/graph_capture.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/unit.h"
#include "tests/engine/host_device.h"

// Graph capture without an engine, on a stream that captures at the first call.
namespace zero {
namespace {

class Captured final : public CapturedGraph {
 public:
  explicit Captured(std::string_view refusal) : refusal_(refusal) {}
  std::int64_t nodes() const override { return refusal_.empty() ? 3 : 0; }
  std::string_view refusal() const override { return refusal_; }

 private:
  std::string refusal_;
};

class CapturingStream final : public Stream {
 public:
  bool captures() const override { return true; }
  Event record() override { return {}; }
  void synchronize() override {}
  double waited_seconds() const override { return 0; }

  std::vector<std::string> names;
  std::string refusal;

 private:
  void do_submit(std::string_view /*what*/, Work work) override { work(); }
  void do_repeat(std::unique_ptr<CapturedGraph>& graph, std::string_view what,
                 CapturedGraph::Check /*check*/, const Work& body) override {
    names.emplace_back(what);
    if (graph != nullptr) return;
    graph = std::make_unique<Captured>(refusal);
    body();
  }
  void do_wait(const Event& /*event*/) override {}
};

struct Captures : ::testing::Test {
  void repeat(const GraphCapture::Key& key, Phase phase, std::vector<int> asks = {}) {
    graphs.repeat(key, unit, phase, [&] {
      ++bodies;
      for (const int index : asks) unit.requested[static_cast<std::size_t>(index)] = 1;
    });
  }

  testing::HostDevice<CapturingStream> device;
  GraphCapture graphs{device, CapturedGraph::Check::at_first};
  Unit unit = Unit::make("block", {{"weight", {2}}, {"bias", {1}}}, 1);
  int bodies = 0;
};

TEST_F(Captures, AreReplayedWithTheGradientsThatTheirBodyAskedFor) {
  repeat({false, 4, 0}, Phase::backward, {1});
  EXPECT_EQ(unit.requested, (std::vector<char>{0, 1}));
  unit.requested = {0, 0};
  repeat({false, 4, 0}, Phase::backward, {1});
  EXPECT_EQ(unit.requested, (std::vector<char>{0, 1}));
  EXPECT_EQ(bodies, 1);
  EXPECT_EQ(device.compute().names, (std::vector<std::string>{"block backward", "block backward"}));
}

TEST_F(Captures, BeginAnewIfOtherGradientsWereAskedForBefore) {
  repeat({false, 4, 0}, Phase::backward, {1});
  repeat({false, 4, 0}, Phase::backward, {1});  // the bias is asked for already
  EXPECT_EQ(bodies, 2);
}

TEST_F(Captures, OfForwardDoNotDependOnGradients) {
  repeat({false, 0, 0}, Phase::forward);
  unit.requested = {1, 1};
  repeat({false, 0, 0}, Phase::forward);
  EXPECT_EQ(bodies, 1);
  EXPECT_EQ(unit.requested, (std::vector<char>{1, 1}));
  EXPECT_EQ(device.compute().names[0], "block forward");
}

TEST_F(Captures, OfEachRepeatAreApartAndCountedUntilCleared) {
  for (const bool evaluation : {false, true}) {
    for (const int step : {0, 1}) {
      for (const std::size_t nth : {0, 1}) repeat({evaluation, step, nth}, Phase::forward);
    }
  }
  EXPECT_EQ(bodies, 8);
  EXPECT_EQ(graphs.captured().graphs, 8);
  EXPECT_EQ(graphs.captured().nodes, 24);
  device.compute().refusal = "host code";
  repeat({false, 2, 0}, Phase::forward);
  EXPECT_EQ(graphs.captured().graphs, 8);
  EXPECT_EQ(graphs.captured().refused, 1);
  EXPECT_EQ(graphs.captured().refusal, "host code");
  graphs.clear();
  EXPECT_EQ(graphs.captured().graphs + graphs.captured().refused, 0);
  repeat({false, 0, 0}, Phase::forward);
  EXPECT_EQ(bodies, 10);
}

}  // namespace
}  // namespace zero
