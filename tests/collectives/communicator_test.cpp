// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/backends.h"
#include "collectives/forwarding_backend.h"
#include "tests/collectives/recorder.h"
#include "tests/errors.h"

namespace zero::test {
namespace {

using testing::Recorder;

TEST(Communicator, CountsAndReportsEveryCollectiveInOrderWithItsBytes) {
  const auto device = planning::open();
  const auto comm = planning::communicator(1, 4, BackendKind::local);
  const Recorder recorder(*comm);
  Stream& stream = device->communication();
  const Buffer buffer = device->allocate(400, DType::bf16, MemoryClass::other, "x");
  const Buffer other = device->allocate(400, DType::bf16, MemoryClass::other, "y");
  const Buffer values = device->allocate(34, DType::i64, MemoryClass::other, "limbs");
  const Slices full = Slices::even(buffer.view(), 4);

  comm->all_gather(full.of(1), full, stream, {"h.0"});
  comm->reduce_scatter(full, {{}, full.of(1), nullptr}, {}, stream, {"h.1", Operation::all_reduce});
  comm->all_reduce(values.view(), ReduceOp::sum, stream, {"gradient norm"});
  comm->all_to_all(full, Slices::even(other.view(), 4), stream, {"tokens"});
  comm->broadcast(values.view(), 0, stream, {"seed"});
  comm->barrier(stream, {"end"});

  using enum Operation;
  const std::vector<CollectiveRecord> expected{
      {all_gather, all_gather, "h.0", DType::bf16, 800, 600},
      {reduce_scatter, all_reduce, "h.1", DType::bf16, 800, 600},
      {all_reduce, all_reduce, "gradient norm", DType::i64, 272, 408},
      {all_to_all, all_to_all, "tokens", DType::bf16, 800, 600},
      {broadcast, broadcast, "seed", DType::i64, 272, 204},
      {barrier, barrier, "end", DType::u8, 0, 0}};
  EXPECT_EQ(recorder.records(), expected);
  EXPECT_EQ(comm->traffic().of(all_gather), 600);
  EXPECT_EQ(comm->traffic().of(reduce_scatter), 0);
  EXPECT_EQ(comm->traffic().of(all_reduce), 1008);
  EXPECT_EQ(comm->traffic().total(), 600 + 1008 + 600 + 204);

  const TrafficCounter before = comm->traffic();
  comm->all_gather(full.of(1), full, stream, {"h.2"});
  EXPECT_EQ(comm->traffic().since(before).total(), 600);
  comm->clear_traffic();
  EXPECT_EQ(comm->traffic().total(), 0);
}

void reduce_ten(Communicator& communicator, Device& device) {
  const Buffer values = device.allocate(10, DType::fp32, MemoryClass::other, "x");
  communicator.all_reduce(values.view(), ReduceOp::sum, device.communication(), {"x"});
  device.communication().synchronize();
}

TEST(Communicator, NeitherCountsNorReportsWhatWasRefused) {
  const auto device = planning::open();
  const auto comm = planning::communicator(0, 2, BackendKind::mpi);
  const Recorder recorder(*comm);
  EXPECT_NE(error_of([&] { comm->broadcast({}, 7, device->communication(), {"x"}); }), "no error");
  EXPECT_TRUE(recorder.records().empty());
  EXPECT_EQ(comm->traffic().total(), 0);
}

TEST(Communicator, NeitherCountsNorReportsWhatTheBackendRefuses) {
  class Refusing final : public ForwardingBackend {
   public:
    using ForwardingBackend::ForwardingBackend;
    void all_reduce(View, ReduceOp, Stream&, const Tag&) override { fail("no such wire"); }
  };
  const auto device = planning::open();
  const auto inner = planning::communicator(0, 2, BackendKind::mpi);
  Communicator comm(std::make_shared<Refusing>(*inner));
  const Recorder recorder(comm);
  EXPECT_EQ(error_of([&] { reduce_ten(comm, *device); }), "no such wire");
  EXPECT_TRUE(recorder.records().empty());
  EXPECT_EQ(comm.traffic().total(), 0);
}

TEST(Communicator, SeveralOnOneBackendCountForThemselves) {
  const auto device = planning::open();
  const auto one = planning::communicator(0, 2, BackendKind::mpi);
  Communicator other(one->implementation());
  reduce_ten(*one, *device);
  reduce_ten(*one, *device);
  reduce_ten(other, *device);
  EXPECT_EQ(one->traffic().of(Operation::all_reduce), 80);
  EXPECT_EQ(other.traffic().of(Operation::all_reduce), 40);
}

TEST(Communicator, TellsAllListenersOfItsCollectivesAndItsSplits) {
  local::run(4, [](Communicator& world) {
    const auto device = cpu::open();
    const auto part = world.split(world.rank() % 2, 0);
    Communicator handle(part->implementation());
    Recorder first(world);
    {
      const Recorder second(*part);
      reduce_ten(world, *device);
      reduce_ten(*part, *device);
      first.pause();
      reduce_ten(handle, *device);
      ZERO_CHECK(second.records().size() == 3, "the second heard {}", second.records().size());
      ZERO_CHECK(second.records()[2].sent_bytes == 40, "of two ranks");
    }
    reduce_ten(world, *device);
    ZERO_CHECK(first.records().size() == 2, "the first heard {}", first.records().size());
    const auto alone = world.split(world.rank(), 0);
    const Recorder third(*alone);
    reduce_ten(*alone, *device);
    ZERO_CHECK(third.records().empty(), "a world of one has nothing to hear");
  });
}

/// Calls `act` at each collective.
class Acting final : public CollectiveListener {
 public:
  explicit Acting(std::function<void()> act) : act_(std::move(act)) {}
  bool listens() const noexcept override { return true; }
  void collective(const CollectiveRecord&, Mark /*begin*/, Mark /*end*/) noexcept override {
    act_();
  }

 private:
  std::function<void()> act_;
};

TEST(Communicator, ListenersMayComeAndGoWhileTheyAreCalled) {
  const auto device = planning::open();
  const auto comm = planning::communicator(0, 2, BackendKind::mpi);
  std::vector<std::optional<Recorder>> recorders(64);
  std::optional<Listening> acting;
  std::optional<Recorder> behind;
  Acting listener([&] {
    behind.reset();  // it has not heard of this collective, and is gone
    for (auto& recorder : recorders) recorder.emplace(*comm);
    acting.reset();
  });
  acting.emplace(*comm, listener);
  behind.emplace(*comm);
  reduce_ten(*comm, *device);
  for (const auto& recorder : recorders) EXPECT_TRUE(recorder->records().empty());
  reduce_ten(*comm, *device);
  for (const auto& recorder : recorders) EXPECT_EQ(recorder->records().size(), 1U);
  EXPECT_FALSE(acting || behind) << "neither hears of the second collective";
}

TEST(Communicator, AListenerMayHaveTheFirstTurnAndKeepACollectiveFromTheOthers) {
  class Refusing final : public CollectiveListener {
   public:
    bool listens() const noexcept override { return true; }
    void submitting(const CollectiveRecord&, const CollectiveBackend&, Stream&) override {
      if (refuses) fail("not this one");
    }
    void collective(const CollectiveRecord&, Mark, Mark) noexcept override {}
    bool refuses = true;
  };
  class Hearing final : public CollectiveListener {
   public:
    bool listens() const noexcept override { return true; }
    void submitting(const CollectiveRecord&, const CollectiveBackend&, Stream&) override {
      ++heard;
    }
    void collective(const CollectiveRecord&, Mark, Mark) noexcept override {}
    int heard = 0;
  };
  const auto device = planning::open();
  const auto comm = planning::communicator(0, 2, BackendKind::mpi);
  Hearing others;
  Refusing refusing;
  const Listening earlier(*comm, others);
  std::optional<Listening> first;
  first.emplace(*comm, refusing, Listening::Turn::first);
  EXPECT_EQ(error_of([&] { reduce_ten(*comm, *device); }), "not this one");
  EXPECT_EQ(others.heard, 0);
  refusing.refuses = false;
  reduce_ten(*comm, *device);
  EXPECT_EQ(others.heard, 1);
  first.emplace(*comm, refusing);
  refusing.refuses = true;
  EXPECT_EQ(error_of([&] { reduce_ten(*comm, *device); }), "not this one");
  EXPECT_EQ(others.heard, 2) << "its turn is behind those of earlier ones";
}

TEST(Communicator, AListenerMayCallACollectiveOfItsOwn) {
  const auto device = planning::open();
  const auto comm = planning::communicator(0, 2, BackendKind::mpi);
  int calls = 0;
  std::optional<Listening> acting;
  Acting listener([&] {
    if (++calls == 3) acting.reset();
    reduce_ten(*comm, *device);
  });
  acting.emplace(*comm, listener);
  const Recorder behind(*comm);
  reduce_ten(*comm, *device);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(behind.records().size(), 4U);
}

TEST(Communicator, MarksStandBeforeAndBehindTheCollective) {
  class Timer final : public CollectiveListener {
   public:
    bool listens() const noexcept override { return true; }
    void collective(const CollectiveRecord&, Mark begin, Mark end) noexcept override {
      seconds = [begin, end] { return end.seconds_since(begin); };
    }
    std::function<std::optional<double>()> seconds;
  };
  local::run(2, [](Communicator& world) {
    const auto device = cpu::open();
    Timer timer;
    const Listening listening(world, timer);
    // Rank 1 comes late, so the collective of rank 0 takes as long.
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    world.barrier(device->communication(), {"late"});
    device->communication().synchronize();
    const std::optional<double> seconds = timer.seconds();
    ZERO_CHECK(seconds && *seconds >= 0, "the marks have not been passed");
    ZERO_CHECK(world.rank() == 1 || *seconds > 0.01, "the barrier took {} s", *seconds);
  });
}

/// Keeps what it hears before and behind collectives, in order.
class Order final : public CollectiveListener {
 public:
  bool listens() const noexcept override { return true; }
  void submitting(const CollectiveRecord& record, const CollectiveBackend& group,
                  Stream& /*stream*/) override {
    ZERO_CHECK(record.purpose != "refused", "a listener refuses");
    heard.push_back("submitting " + record.purpose);
    groups.push_back(&group);
  }
  void collective(const CollectiveRecord& record, Mark, Mark) noexcept override {
    heard.push_back("submitted " + record.purpose);
  }
  void host_call(const CollectiveBackend& group, std::string_view name) noexcept override {
    heard.push_back("begin of " + std::string(name));
    groups.push_back(&group);
  }
  void host_call_ended(const CollectiveBackend& group) noexcept override {
    heard.push_back("end");
    groups.push_back(&group);
  }

  void split(const CollectiveBackend& group, const CollectiveBackend& part) noexcept override {
    heard.push_back("part of " + std::to_string(part.size()));
    groups.push_back(&group);
    parts.push_back(&part);
  }

  std::vector<std::string> heard{};
  std::vector<const CollectiveBackend*> groups{};
  std::vector<const CollectiveBackend*> parts{};
};

TEST(Communicator, ListenersHearOfACollectiveBeforeItIsSubmitted) {
  const auto device = planning::open();
  const auto comm = planning::communicator(0, 2, BackendKind::mpi);
  Order order;
  const Listening listening(*comm, order);
  comm->barrier(device->communication(), {"a"});
  EXPECT_EQ(order.heard, (std::vector<std::string>{"submitting a", "submitted a"}));
  EXPECT_EQ(order.groups.at(0), comm->implementation().get());
}

TEST(Communicator, ACollectiveThatAListenerRefusesIsNotSubmitted) {
  const auto device = planning::open();
  const auto comm = planning::communicator(0, 2, BackendKind::mpi);
  const Recorder before(*comm);
  Order order;
  std::optional<Listening> listening(std::in_place, *comm, order);
  const Buffer values = device->allocate(10, DType::fp32, MemoryClass::other, "x");
  EXPECT_EQ(error_of([&] {
              comm->all_reduce(values.view(), ReduceOp::sum, device->communication(), {"refused"});
            }),
            "a listener refuses");
  EXPECT_TRUE(before.records().empty());
  EXPECT_EQ(comm->traffic().total(), 0);
  listening.reset();  // leaves the list, which is not being called any more
  reduce_ten(*comm, *device);
  EXPECT_EQ(before.records().size(), 1U);
  EXPECT_TRUE(order.heard.empty());
}

TEST(Communicator, ListenersHearOfCallsThatBlockTheHosts) {
  local::run(2, [](Communicator& world) {
    const auto device = cpu::open();
    Order order;
    const Listening listening(world, order);
    const auto part = world.split(0, world.rank());
    world.allocate_shared(*device, 8, DType::fp32, MemoryClass::other, "x");
    world.allocate_symmetric(*device, 8, DType::fp32, MemoryClass::other, "y");
    const std::vector<std::string> expected{"begin of split",
                                            "end",
                                            "part of 2",
                                            "begin of allocate_shared",
                                            "end",
                                            "begin of allocate_symmetric",
                                            "end"};
    ZERO_CHECK(order.heard == expected, "{} calls were heard", order.heard.size());
    for (const auto* group : order.groups) {
      ZERO_CHECK(group == world.implementation().get(), "of another group");
    }
    const auto alone = world.split(world.rank(), 0);
    order.heard.clear();
    ZERO_CHECK(alone->split(0, 0) && order.heard.empty(), "one rank alone waits for nobody");
  });
}

TEST(Communicator, ListenersHearOfThePartsThatTheirRankSharesWithOthers) {
  local::run(3, [](Communicator& world) {
    Order order;
    const Listening listening(world, order);
    const bool out = world.rank() == 1;
    const auto part = world.split(out ? -1 : 0, -world.rank());
    const auto alone = world.split(world.rank(), 0);
    const std::size_t expected = out ? 0 : 1;
    ZERO_CHECK(order.parts.size() == expected, "heard of {} parts", order.parts.size());
    ZERO_CHECK(std::ranges::count(order.heard, "part of 2") == (out ? 0 : 1), "of two ranks");
    ZERO_CHECK(world.implementation()->members().empty(), "the world is no part");
    ZERO_CHECK(alone->implementation()->members() == std::vector{world.rank()}, "one rank alone");
    if (out) return;
    ZERO_CHECK(order.parts[0] == part->implementation().get(), "of another part");
    ZERO_CHECK(order.groups[2] == world.implementation().get(), "of another group");
    ZERO_CHECK((order.parts[0]->members() == std::vector<int>{2, 0}), "other members");
  });
}

TEST(SentBytes, FollowTheAlgorithm) {
  using enum Operation;
  for (const Operation operation : {all_gather, reduce_scatter, all_to_all, broadcast}) {
    EXPECT_EQ(Communicator::sent_bytes(operation, 800, 8), 700) << name_of(operation);
    EXPECT_EQ(Communicator::sent_bytes(operation, 800, 1), 0) << name_of(operation);
  }
  EXPECT_EQ(Communicator::sent_bytes(all_reduce, 800, 8), 1400);
  EXPECT_EQ(Communicator::sent_bytes(barrier, 0, 8), 0);
  EXPECT_EQ(error_of([] { static_cast<void>(Communicator::sent_bytes(all_gather, 1, 0)); }),
            "a world of 0 ranks; expected at least 1");
}

}  // namespace
}  // namespace zero::test
