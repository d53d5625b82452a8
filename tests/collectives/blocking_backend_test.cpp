// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/backends.h"
#include "collectives/collective_backend.h"
#include "collectives/stores.h"
#include "tests/errors.h"

namespace zero::test {
namespace {

using ::testing::ElementsAre;

/// Notes its calls, with the step each belongs to; fails in broadcast. Waits in barrier() until it
/// is let go.
class NotingTransport final : public Transport {
 public:
  void set_step(std::int64_t step) override { step_ = step; }
  void all_gather(View, const Slices&, std::string_view purpose) override {
    note("gather", purpose);
  }
  void reduce_scatter(const Slices&, const ReduceEpilogue&, View workspace,
                      std::string_view purpose) override {
    note(fmt::format("reduce[{}]", workspace.count()), purpose);
  }
  void all_reduce(View, ReduceOp op, std::string_view purpose) override {
    note(name_of(op), purpose);
  }
  void all_to_all(const Slices&, const Slices&, std::string_view purpose) override {
    note("exchange", purpose);
  }
  void broadcast(View, int root, std::string_view) override { fail("no way to rank {}", root); }
  void barrier(std::string_view purpose) override {
    while (!go) std::this_thread::yield();
    note("barrier", purpose);
  }

  std::vector<std::string> calls;
  std::atomic<bool> go = true;

 private:
  void note(std::string_view verb, std::string_view purpose) {
    calls.push_back(fmt::format("{}({}) {}", verb, purpose, step_));
  }

  std::int64_t step_ = CallContext::kNoStep;
};

/// Rank 0 of two, the other of which is not there.
class HalfBackend final : public BlockingBackend {
 public:
  explicit HalfBackend(std::shared_ptr<Transport> transport)
      : BlockingBackend(std::make_shared<CallContext>()) {
    set_transport(std::move(transport));
  }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 2; }
  BackendKind kind() const override { return BackendKind::mpi; }
  std::string_view description() const override { return "notes"; }
  std::shared_ptr<CollectiveBackend> split(int, int) override { return nullptr; }
  Store& store() override { return store_; }

 private:
  InProcessStore store_;
};

TEST(BlockingBackend, RunsEveryCallOnTheStreamWithItsUnitAndTheStepOfTheCaller) {
  const auto transport = std::make_shared<NotingTransport>();
  Communicator comm(std::make_shared<HalfBackend>(transport));
  const auto device = cpu::open();
  Stream& stream = device->communication();
  std::vector<float> values(8);
  std::vector<float> others(8);
  const Slices full = Slices::even(View::of(std::span(values)), 2);
  const Slices other = Slices::even(View::of(std::span(others)), 2);

  comm.set_step(4);
  transport->go = false;
  comm.barrier(stream, {"start"});
  comm.all_gather(full.of(0), full, stream, {"h.0"});
  comm.set_step(5);
  comm.reduce_scatter(full, {{}, full.of(0), nullptr}, other.of(0), stream, {"h.1"});
  comm.all_reduce(full.buffer, ReduceOp::max, stream, {"norm"});
  comm.all_to_all(full, other, stream, {"tokens"});
  EXPECT_TRUE(transport->calls.empty());  // the caller goes on while the first call waits
  transport->go = true;
  stream.synchronize();
  EXPECT_THAT(transport->calls, ElementsAre("barrier(start) 4", "gather(h.0) 4", "reduce[4](h.1) 5",
                                            "max(norm) 5", "exchange(tokens) 5"));
}

TEST(BlockingBackend, GivesTheTransportsErrorToWhoWaitsForTheStream) {
  Communicator comm(std::make_shared<HalfBackend>(std::make_shared<NotingTransport>()));
  const auto device = cpu::open();
  std::vector<float> values(8);
  EXPECT_EQ(error_of([&] {
              comm.broadcast(View::of(std::span(values)), 1, device->communication(), {"x"});
              device->communication().synchronize();
            }),
            "no way to rank 1");
}

TEST(BlockingBackend, QueuedWorkKeepsTheTransport) {
  auto transport = std::make_shared<NotingTransport>();
  const auto device = cpu::open();
  transport->go = false;
  Communicator(std::make_shared<HalfBackend>(transport)).barrier(device->communication(), {"x"});
  const std::weak_ptr<NotingTransport> queued = transport;
  std::atomic<bool>& go = transport->go;
  transport = nullptr;
  ASSERT_FALSE(queued.expired());
  go = true;
  EXPECT_EQ(error_of([&] { device->communication().synchronize(); }), "no error");
}

}  // namespace
}  // namespace zero::test
