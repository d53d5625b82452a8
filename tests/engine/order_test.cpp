// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/host_device.h"
#include "tests/engine/plain.h"

namespace zero {
namespace {

/// What was submitted and awaited, in the order in which the host said so.
using Log = std::vector<std::string>;

/// The point after a piece of work, by its name.
class Point final : public Event::State {
 public:
  explicit Point(std::string after) : after_(std::move(after)) {}
  const std::string& after() const { return after_; }
  bool complete() override { return true; }
  void synchronize() override {}

 private:
  std::string after_;
};

/// Runs work at once and writes down what it ran and what it waited for.
class LoggedStream final : public Stream {
 public:
  explicit LoggedStream(Log& log) : log_(log) {}
  Event record() override { return Event(std::make_shared<Point>(last_)); }
  void synchronize() override {}
  double waited_seconds() const override { return 0; }

 private:
  void do_submit(std::string_view what, Work work) override {
    last_ = what;
    log_.emplace_back(what);
    work();
  }
  void do_wait(const Event& event) override {
    if (const auto* point = dynamic_cast<const Point*>(event.state()))
      log_.push_back("wait for " + point->after());
  }

  Log& log_;
  std::string last_;
};

using LoggedDevice = testing::HostDevice<LoggedStream>;

/// What of a log is about updates, gathers and waits for them.
Log gathers_and_updates(const Log& log) {
  Log chosen;
  for (const std::string& line : log) {
    const bool counts = line == "AdamW" || line.find("all_gather(") != std::string::npos ||
                        line.find("gradient norm") != std::string::npos;
    if (counts) chosen.push_back(line);
  }
  return chosen;
}

/// On every rank of two: three equal units, one step, then `body` with the log of what follows the
/// last backward.
void after_a_step(int stage, const std::function<void(plain::Trainer&, Log&)>& body) {
  local::run(2, [&](Communicator& communicator) {
    Log log;
    LoggedDevice device(log);
    plain::Trainer trainer(communicator, device,
                           {plain::options(stage), plain::equal_units(3, 128), 1});
    trainer.forward();
    trainer.backward(communicator.rank());
    log.clear();
    StepOptions options;
    options.learning_rate = 0.01;
    static_cast<void>(trainer.engine().step(options));
    body(trainer, log);
  });
}

TEST(OrderAtTheEndOfAStep, UpdatesFollowTheNormAndEachStartsItsGatherAtOnce) {
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    after_a_step(stage, [&](plain::Trainer&, const Log& log) {
      Log expected{"all_reduce(gradient norm and loss)",
                   "wait for all_reduce(gradient norm and loss)",
                   "AdamW",
                   "all_gather(layer.0)",
                   "AdamW",
                   "all_gather(layer.1)",
                   "AdamW",
                   "all_gather(layer.2)"};
      if (stage == 3) expected.pop_back();  // two units are gathered ahead of their use
      EXPECT_EQ(gathers_and_updates(log), expected);
    });
  }
}

TEST(OrderAtTheEndOfAStep, AUnitWaitsForItsOwnGatherAndForNoLaterOne) {
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    after_a_step(stage, [](plain::Trainer& trainer, Log& log) {
      for (std::size_t unit = 0; unit < 3; ++unit) {
        log.clear();
        static_cast<void>(trainer.engine().forward(trainer.units()[unit]));
        std::string last;
        for (const std::string& line : log) {
          if (line.starts_with("wait for all_gather")) last = std::max(last, line);
        }
        EXPECT_EQ(last, fmt::format("wait for all_gather(layer.{})", unit));
      }
    });
  }
}

}  // namespace
}  // namespace zero
