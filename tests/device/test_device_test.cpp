// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_device.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "device/device.h"
#include "tests/case_names.h"
#include "tests/errors.h"

namespace zero::testing {
namespace {

constexpr std::uint64_t kSeeds = 64;

std::unique_ptr<Device> lazy() { return testing::open({.policy = StreamOrder::Policy::lazy}); }
std::unique_ptr<Device> seeded(std::uint64_t seed) {
  return testing::open({.policy = StreamOrder::Policy::seeded, .seed = seed});
}

/// Which waits a toy pipeline leaves out.
enum class Forgotten { nothing, before_reading, before_overwriting };

struct Pipeline {
  Forgotten forgotten = Forgotten::nothing;
  int producer = 0;  ///< the streams' numbers: see stream()
  int reader = 1;
  bool reader_first = false;  ///< which stream the host synchronizes first
};

Stream& stream(Device& device, int number) {
  Stream* const streams[] = {&device.compute(), &device.communication(), &device.transfer()};
  return *streams[number];
}

/// One stream produces 1, the other reads it, the first overwrites it with 2; gives what was read.
int read_by(Device& device, const Pipeline& pipeline) {
  Stream& producer = stream(device, pipeline.producer);
  Stream& reader = stream(device, pipeline.reader);
  int shared = 0;
  int read = -1;
  producer.submit("produce", [&] { shared = 1; });
  if (pipeline.forgotten != Forgotten::before_reading) reader.wait(producer.record());
  reader.submit("read", [&] { read = shared; });
  if (pipeline.forgotten != Forgotten::before_overwriting) producer.wait(reader.record());
  producer.submit("overwrite", [&] { shared = 2; });
  (pipeline.reader_first ? reader : producer).synchronize();
  (pipeline.reader_first ? producer : reader).synchronize();
  return read;
}

class ForgottenWaits : public ::testing::TestWithParam<std::tuple<int, int, bool>> {
 protected:
  Pipeline with(Forgotten forgotten) const {
    const auto [producer, step, reader_first] = GetParam();
    return {forgotten, producer, (producer + step) % 3, reader_first};
  }
  std::set<int> values_over_seeds(const Pipeline& pipeline) const {
    std::set<int> values;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      values.insert(read_by(*seeded(seed), pipeline));
    }
    return values;
  }
};

INSTANTIATE_TEST_SUITE_P(OfEachTwoStreams, ForgottenWaits,
                         ::testing::Combine(::testing::Range(0, 3), ::testing::Range(1, 3),
                                            ::testing::Bool()),
                         zero::testing::kCaseName);

TEST_P(ForgottenWaits, WithAllWaitsEveryOrderReadsTheSame) {
  EXPECT_EQ(1, read_by(*lazy(), with(Forgotten::nothing)));
  EXPECT_EQ(std::set<int>{1}, values_over_seeds(with(Forgotten::nothing)));
}

TEST_P(ForgottenWaits, SeededOrdersReadTooEarly) {
  const std::set<int> values = values_over_seeds(with(Forgotten::before_reading));
  EXPECT_TRUE(values.contains(0));
  EXPECT_TRUE(values.contains(1));
}

TEST_P(ForgottenWaits, SeededOrdersOverwriteTooEarly) {
  EXPECT_EQ((std::set<int>{1, 2}), values_over_seeds(with(Forgotten::before_overwriting)));
}

TEST(LazyStreams, ReadTooEarlyWithoutTheWait) {
  EXPECT_EQ(0, read_by(*lazy(), {.forgotten = Forgotten::before_reading, .reader_first = true}));
}

TEST(LazyStreams, OverwriteTooEarlyWithoutTheWait) {
  EXPECT_EQ(2,
            read_by(*lazy(), {.forgotten = Forgotten::before_overwriting, .reader_first = false}));
}

TEST(LazyStreams, RunOnlyWhatASynchronizeNeeds) {
  const auto device = lazy();
  std::string ran;
  device->compute().submit("a", [&] { ran += 'a'; });
  const Event a = device->compute().record();
  device->compute().submit("b", [&] { ran += 'b'; });
  device->communication().submit("c", [&] { ran += 'c'; });
  device->communication().wait(a);
  device->communication().submit("d", [&] { ran += 'd'; });
  const Event d = device->communication().record();
  device->communication().submit("e", [&] { ran += 'e'; });
  EXPECT_FALSE(d.complete());
  EXPECT_EQ("", ran);
  d.synchronize();
  EXPECT_EQ("cad", ran);
  EXPECT_TRUE(a.complete());
  device->compute().synchronize();
  EXPECT_EQ("cadb", ran);
}

TEST(LazyStreams, FollowWaitsThroughAllStreams) {
  const auto device = lazy();
  std::string ran;
  for (int i = 0; i < 6; ++i) {
    Stream& mine = stream(*device, i % 3);
    if (i > 0) mine.wait(stream(*device, (i + 2) % 3).record());
    mine.submit("note", [&ran, i] { ran += static_cast<char>('0' + i); });
  }
  device->transfer().synchronize();
  EXPECT_EQ("012345", ran);
}

TEST(TestStreams, DoNotRunWorkWhenAskedWhetherItIsDone) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto device = seeded(seed);
    int ran = 0;
    for (int i = 0; i < 4; ++i) device->compute().submit("count", [&] { ++ran; });
    const Event point = device->compute().record();
    const int before = ran;
    for (int i = 0; i < 10; ++i) (void)point.complete();
    EXPECT_EQ(before, ran);
  }
}

TEST(TestStreams, DropWhatNobodyWaitedFor) {
  bool ran = false;
  {
    const auto device = lazy();
    device->compute().submit("never", [&] { ran = true; });
  }
  EXPECT_FALSE(ran);
}

TEST(TestStreams, TheSameSeedGivesTheSameOrder) {
  const auto order_of = [](std::uint64_t seed) {
    const auto device = seeded(seed);
    std::string ran;
    for (int i = 0; i < 8; ++i) {
      device->compute().submit("c", [&] { ran += 'c'; });
      device->communication().submit("m", [&] { ran += 'm'; });
      device->transfer().submit("t", [&] { ran += 't'; });
    }
    for (int i = 0; i < 3; ++i) stream(*device, i).synchronize();
    return ran;
  };
  EXPECT_EQ(order_of(7), order_of(7));
}

TEST(TestStreams, SeedsReachEveryOrder) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < 50000; ++seed) {
    const auto device = seeded(seed);
    std::string ran;
    for (int i = 0; i < 2; ++i) {
      device->compute().submit("c", [&] { ran += 'c'; });
      device->communication().submit("m", [&] { ran += 'm'; });
      device->transfer().submit("t", [&] { ran += 't'; });
    }
    for (int i = 0; i < 3; ++i) stream(*device, i).synchronize();
    orders.insert(ran);
  }
  EXPECT_EQ(90U, orders.size());  // 6! / (2! 2! 2!)
}

TEST(TestStreams, RefuseWorkThatWaitsForItsOwnStream) {
  const auto device = lazy();
  Stream& compute = device->compute();
  compute.submit("waits", [&] { compute.synchronize(); });
  EXPECT_EQ("test device: work waits for its own stream, which would never end",
            error_of([&] { compute.synchronize(); }));
}

}  // namespace
}  // namespace zero::testing
