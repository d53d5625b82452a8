// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/checked_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>

#include "collectives/backends.h"
#include "collectives/forwarding_backend.h"
#include "tests/collectives/body.h"
#include "tests/collectives/messages.h"
#include "tests/support/test_device.h"

namespace zero::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CheckedBackend, MovesAndReducesByTheContractOfTheOneBelow) {
  for (const int world : {1, 2, 3, 5}) {
    for (const std::int64_t total : {0, 1, 64, 1000}) {
      local::run(world, [&](Communicator& below) {
        const auto device = cpu::open();
        Communicator communicator(checked_backend(below, "a"));
        check_everything(communicator, *device, total);
      });
    }
  }
}

TEST(CheckedBackend, CutsLongReductionsWithoutAnotherBit) {
  local::run(3, [](Communicator& below) {
    const auto device = cpu::open();
    Communicator communicator(checked_backend(below, "a"));
    check_everything(communicator, *device, std::int64_t{1} << 20);
    const Rank rank(communicator, *device);
    check_split(rank);
    check_buckets(rank);
    check_exchange(communicator, *device);
  });
}

TEST(CheckedBackend, HoldsInEveryLegalOrderOfStreams) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    local::run(2, [seed](Communicator& below) {
      const auto device =
          testing::open({.policy = testing::StreamOrder::Policy::seeded,
                         .seed = seed * 64 + static_cast<std::uint64_t>(below.rank())});
      Communicator communicator(checked_backend(below, "a"));
      check_everything(communicator, *device, 100);
      check_exchange(communicator, *device);
    });
  }
}

/// Flips the lowest bit of a byte of what rank 1 receives from rank 0 in call `number` of the
/// collectives that move values, from 0.
class Flipping final : public ForwardingBackend {
 public:
  Flipping(const Communicator& inner, int number) : ForwardingBackend(inner), left_(number) {}

  void all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override {
    ForwardingBackend::all_gather(mine, full, stream, tag);
    flip(full.of(0), stream);
  }
  void all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                  const Tag& tag) override {
    ForwardingBackend::all_to_all(send, receive, stream, tag);
    flip(receive.of(0), stream);
  }
  void broadcast(View values, int root, Stream& stream, const Tag& tag) override {
    ForwardingBackend::broadcast(values, root, stream, tag);
    flip(values, stream);
  }

 private:
  void flip(const View& values, Stream& stream) {
    if (rank() != 1 || left_-- != 0) return;
    stream.submit_host(
        "flip", [values] { static_cast<std::uint8_t*>(values.data())[5] ^= std::uint8_t{1}; });
  }

  int left_;
};

using Body = std::function<void(Communicator&, View, Stream&)>;

/// What two ranks meet in `body`, where flip `number` falls; each has 8 fp32 values.
std::vector<std::string> flipped(int number, const Body& body) {
  return messages_of(2, [&](Communicator& below, Device& device) {
    Communicator between(std::make_shared<Flipping>(below, number));
    Communicator communicator(checked_backend(between, below.rank() == 0 ? "alpha" : "beta"));
    communicator.set_step(7);
    const Buffer memory = device.allocate(8, DType::fp32, MemoryClass::other, "values");
    device.kernels().zero(device.communication(), memory.view());
    body(communicator, memory.view(), device.communication());
    device.communication().synchronize();
  });
}

/// Rank 1 names the call, both ranks and their hosts.
void expect_named(const std::vector<std::string>& messages, const std::string& call,
                  const std::string& values) {
  SCOPED_TRACE(call);
  EXPECT_THAT(messages[1],
              AllOf(HasSubstr("[rank 1] " + call + " in step 7: " + values +
                              " fp32 values of rank 0 (host alpha) had checksum "),
                    HasSubstr(" on rank 1 (host beta): memory, or the way between the two, has "
                              "changed them; start again from the newest checkpoint, and test "
                              "both hosts (run.check_collectives)")));
}

TEST(CheckedBackend, NamesCollectiveSenderReceiverAndHostsOfEachFlip) {
  const auto gather = [](Communicator& communicator, View values, Stream& stream) {
    const Slices full = Slices::even(values, 2);
    communicator.all_gather(full.of(communicator.rank()), full, stream, {"h.3"});
  };
  const std::vector<std::string> gathered = flipped(0, gather);
  expect_named(gathered, "all_gather(h.3)", "4");
  EXPECT_EQ(gathered[0], "no error") << "what it received was good";
  expect_named(
      flipped(0, [](Communicator& communicator, View values,
                    Stream& stream) { communicator.broadcast(values, 0, stream, {"seed"}); }),
      "broadcast(seed)", "8");
  expect_named(flipped(0,
                       [](Communicator& communicator, View values, Stream& stream) {
                         const Slices full = Slices::even(values, 2);
                         communicator.reduce_scatter(full,
                                                     {{}, full.of(communicator.rank()), nullptr},
                                                     {}, stream, {"h.3"});
                       }),
               "reduce_scatter(h.3)", "4");
  expect_named(flipped(0,
                       [](Communicator& communicator, View values, Stream& stream) {
                         communicator.all_reduce(values, ReduceOp::sum, stream, {"norm"});
                       }),
               "all_reduce(norm)", "8");
  expect_named(flipped(0,
                       [](Communicator& communicator, View values, Stream& stream) {
                         static std::array<std::array<float, 8>, 2> received{};
                         auto& mine = received.at(static_cast<std::size_t>(communicator.rank()));
                         communicator.all_to_all(Slices::even(values, 2),
                                                 Slices::even(View::of(std::span<float>(mine)), 2),
                                                 stream, {"tokens"});
                       }),
               "all_to_all(tokens)", "4");
  // A checksum that was changed on its way is a finding too.
  expect_named(flipped(1, gather), "all_gather(h.3)", "4");
}

TEST(CheckedBackend, ChecksSplitsAndNamesRanksOfTheWorldThere) {
  const auto messages = messages_of(4, [](Communicator& below, Device& device) {
    class Splitting final : public ForwardingBackend {
     public:
      using ForwardingBackend::ForwardingBackend;
      std::shared_ptr<CollectiveBackend> split(int color, int key) override {
        const Communicator part(ForwardingBackend::split(color, key));
        return std::make_shared<Flipping>(part, 0);
      }
    };
    Communicator between(std::make_shared<Splitting>(below));
    Communicator world(checked_backend(between, fmt::format("of {}", below.rank())));
    const auto part = world.split(world.rank() % 2, 0);
    std::vector<double> values(3, 1.0);
    part->all_reduce(View::of(std::span(values)), ReduceOp::sum, device.communication(), {"x"});
    device.communication().synchronize();
  });
  EXPECT_THAT(messages[2], HasSubstr("values of rank 0 (host of 0) had checksum"));
  EXPECT_THAT(messages[2], HasSubstr("on rank 2 (host of 2)"));
  EXPECT_THAT(messages[2], HasSubstr("[rank 2] ")) << "the second of its group";
  EXPECT_THAT(messages[3], HasSubstr("values of rank 1 (host of 1) had checksum"));
}

}  // namespace
}  // namespace zero::test
