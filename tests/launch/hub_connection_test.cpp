// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/hub_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "launch/rendezvous/store/connection.h"
#include "launch/rendezvous/store/server.h"
#include "launch/rendezvous/store/tls.h"
#include "launch/rendezvous/store/wire.h"
#include "launch/watch/lost_hosts.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace std::chrono_literals;
using std::chrono::milliseconds;
namespace asio = boost::asio;

/// Of host 1 of two.
StoreOptions options_at(int port) {
  return {.host = "127.0.0.1",
          .port = port,
          .rank = 1,
          .world = 2,
          .job = "this run",
          .secret = JobSecret("a secret of this test alone", "the test")};
}

int unused_port() { return StoreServer(options_at(0)).port(); }

/// A link whose rests take no time but on its own clock, and which believes what LostHosts does.
class FakeLink {
 public:
  FakeLink() { hosts_.expect(0, "host 0", now_); }
  FakeLink(const FakeLink&) = delete;
  FakeLink& operator=(const FakeLink&) = delete;

  HubConnection::Link parts() {
    return {.lasts = [this] { return lasts_(); },
            .rest = [this](milliseconds time) { return rest(time); },
            .note = [this](PeerLoss loss) { return note(loss); }};
  }

  /// At the end of a rest, whose number is the size of rests().
  void on_rest(std::function<void()> work) { on_rest_ = std::move(work); }
  /// In place of a link that lasts.
  void on_question(std::function<bool()> lasts) { lasts_ = std::move(lasts); }
  void leave() { leaves_ = true; }

  const std::vector<milliseconds>& rests() const { return rests_; }
  const std::vector<PeerLoss>& notes() const { return notes_; }

 private:
  static constexpr std::size_t kMostRests = 10;  // a test that fails ends

  bool rest(milliseconds time) {
    if (time > 0ms && !leaves_) {
      now_ += time;
      rests_.push_back(time);
      if (on_rest_) on_rest_();
    }
    return !leaves_ && rests_.size() < kMostRests;
  }
  bool note(PeerLoss loss) {
    notes_.push_back(loss);
    hosts_.note({{0, loss}}, now_);
    return hosts_.loss_of(0) != PeerLoss::ended;
  }

  LostHosts hosts_{};
  LostHosts::Clock::time_point now_{};
  bool leaves_ = false;
  std::function<bool()> lasts_ = [] { return true; };
  std::function<void()> on_rest_{};
  std::vector<milliseconds> rests_{};
  std::vector<PeerLoss> notes_{};
};

/// A hub of one connection at a time, which answers a hello after `time`, or never.
class SlowHub {
 public:
  explicit SlowHub(std::optional<milliseconds> time) : time_(time), thread_([this] { serve(); }) {}
  SlowHub(const SlowHub&) = delete;
  SlowHub& operator=(const SlowHub&) = delete;
  ~SlowHub() {
    ends_ = true;
    asio::ip::tcp::socket last(io_);
    boost::system::error_code ignored;
    last.connect(at_, ignored);
    last.close(ignored);
    thread_.join();
  }

  int port() const { return at_.port(); }
  /// How many it has heard.
  int hellos() const { return hellos_; }

 private:
  void serve() {
    while (!ends_) {
      StoreStream stream(StoreSocket(acceptor_.accept()), tls_.context());
      boost::system::error_code ended;
      stream.handshake(asio::ssl::stream_base::server, ended);
      store_wire::FrameReader frames(store_wire::kLargest);
      if (ended || !take(stream, frames)) continue;
      answer(stream);
      if (!take(stream, frames)) continue;
      ++hellos_;
      if (time_) {
        std::this_thread::sleep_for(*time_);
        answer(stream);
      }
      take(stream, frames);  // until the client leaves
    }
  }
  static bool take(StoreStream& stream, store_wire::FrameReader& frames) {
    while (!frames.next()) {
      std::array<char, 4096> piece{};
      boost::system::error_code ended;
      const std::size_t size = stream.read_some(asio::buffer(piece), ended);
      if (ended) return false;
      frames.append({piece.data(), size});
    }
    return true;
  }
  static void answer(StoreStream& stream) {
    boost::system::error_code ended;
    asio::write(stream, asio::buffer(store_wire::framed({"ok"})), ended);
  }

  std::optional<milliseconds> time_;
  asio::io_context io_{};
  asio::ip::tcp::acceptor acceptor_{io_,
                                    asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
  const asio::ip::tcp::endpoint at_ = acceptor_.local_endpoint();
  StoreTls tls_{*options_at(0).secret, StoreTls::End::server};
  std::atomic<int> hellos_{0};
  std::atomic<bool> ends_{false};
  std::thread thread_;  // last: uses all other members
};

// What is between the hosts may refuse connections for a moment.
TEST(HubConnection, ARefusalIsTriedOnceMore) {
  const int port = unused_port();
  std::optional<StoreServer> server;
  FakeLink link;
  link.on_rest([&] { server.emplace(options_at(port)); });
  HubConnection connection(options_at(port), "a proof", nullptr, link.parts());
  EXPECT_TRUE(connection.return_after(PeerLoss::ended));
  EXPECT_THAT(link.rests(), ElementsAre(LostHosts::kBeforeBelief));
  EXPECT_THAT(link.notes(), ElementsAre(PeerLoss::ended)) << "which nobody believes yet";
  EXPECT_THAT(connection.ask({"lost?"}), ElementsAre("ok"));
}

TEST(HubConnection, AHubThatEndsAndRefusesTwiceHasEnded) {
  FakeLink link;
  HubConnection connection(options_at(unused_port()), "a proof", nullptr, link.parts());
  EXPECT_FALSE(connection.return_after(PeerLoss::ended));
  EXPECT_THAT(link.rests(), ElementsAre(LostHosts::kBeforeBelief));
  EXPECT_THAT(link.notes(), ElementsAre(PeerLoss::ended, PeerLoss::ended));
}

// Both may be of what is between the hosts: a firewall that rejects by resets.
TEST(HubConnection, BehindAResetRefusalsAreNoEndHoweverMany) {
  const int port = unused_port();
  std::optional<StoreServer> server;
  FakeLink link;
  link.on_rest([&] {
    if (link.rests().size() == 5) server.emplace(options_at(port));
  });
  HubConnection connection(options_at(port), "a proof", nullptr, link.parts());
  EXPECT_TRUE(connection.return_after(PeerLoss::reset));
  EXPECT_THAT(link.rests(), ElementsAre(200ms, 400ms, 800ms, 1600ms, 2000ms));
  EXPECT_THAT(link.notes(), Each(PeerLoss::reset));
}

// It may have left in good order, which this host could not hear.
TEST(HubConnection, BehindACutItIsTriedLessAndLessOftenThoughNobodyListens) {
  const int port = unused_port();
  std::optional<StoreServer> server;
  FakeLink link;
  link.on_rest([&] {
    if (link.rests().size() == 6) server.emplace(options_at(port));
  });
  HubConnection connection(options_at(port), "a proof", nullptr, link.parts());
  EXPECT_TRUE(connection.return_after(PeerLoss::unreachable));
  EXPECT_THAT(link.rests(), ElementsAre(200ms, 400ms, 800ms, 1600ms, 2000ms, 2000ms));
  EXPECT_THAT(link.notes(), Each(PeerLoss::unreachable));
}

// A temporary address, or that of an interface which has failed.
TEST(HubConnection, AHubWhoseAddressIsGoneIsTriedAtItsOthersAndThenFirstThere) {
  const StoreServer server(options_at(0));
  StoreOptions gone = options_at(server.port());
  gone.host = "192.0.2.1";  // of a network that is for examples
  FakeLink link;
  HubConnection connection(gone, "a proof", nullptr, link.parts(), {"127.0.0.1"});
  EXPECT_TRUE(connection.return_after(PeerLoss::unreachable));
  EXPECT_THAT(link.rests(), ElementsAre(200ms)) << "none between two addresses";
  EXPECT_THAT(link.notes(), AllOf(SizeIs(2), Each(PeerLoss::unreachable))) << "one an attempt";
  EXPECT_THAT(connection.ask({"lost?"}), ElementsAre("ok"));
  EXPECT_TRUE(connection.return_after(PeerLoss::reset));
  EXPECT_THAT(link.notes(), SizeIs(2)) << "the attempt at once is at the right one";
}

TEST(HubConnection, AllAddressesAreTriedInEachRoundUntilTheHubIsThere) {
  const int port = unused_port();
  std::optional<StoreServer> server;
  FakeLink link;
  link.on_rest([&] {
    if (link.rests().size() == 3) server.emplace(options_at(port));
  });
  HubConnection connection(options_at(port), "a proof", nullptr, link.parts(), {"127.0.0.2"});
  EXPECT_TRUE(connection.return_after(PeerLoss::unreachable));
  EXPECT_THAT(link.rests(), ElementsAre(200ms, 400ms, 800ms));
  EXPECT_THAT(link.notes(), SizeIs(5)) << "two of each round, and one";
}

TEST(HubConnection, OneThatDidNotLastIsNotTriedAtOnce) {
  const StoreServer server(options_at(0));
  FakeLink link;
  HubConnection connection(options_at(server.port()), "a proof", nullptr, link.parts());
  EXPECT_TRUE(connection.return_after(PeerLoss::reset));
  EXPECT_THAT(link.rests(), IsEmpty());
  EXPECT_TRUE(connection.return_after(PeerLoss::reset));
  EXPECT_THAT(link.rests(), ElementsAre(200ms));
  EXPECT_THAT(link.notes(), IsEmpty());
}

TEST(HubConnection, AnotherHubIsNone) {
  StoreOptions other = options_at(0);
  other.job = "another run";
  const StoreServer server(other);
  FakeLink link;
  link.on_rest([&] {
    if (link.rests().size() == 2) link.leave();
  });
  HubConnection connection(options_at(server.port()), "a proof", nullptr, link.parts());
  EXPECT_FALSE(connection.return_after(PeerLoss::ended));
  EXPECT_THAT(link.notes(), ElementsAre(PeerLoss::reset, PeerLoss::reset));
}

// The hub may have heard it: the end of its connection would be the end of this process.
TEST(HubConnection, AHelloIsWaitedForHoweverSlow) {
  SlowHub hub(900ms);  // an attempt at once has 300 ms
  FakeLink link;
  HubConnection connection(options_at(hub.port()), "a proof", nullptr, link.parts());
  EXPECT_TRUE(connection.return_after(PeerLoss::reset));
  EXPECT_EQ(hub.hellos(), 1);
}

TEST(HubConnection, AHelloIsWaitedForByARankThatLeaves) {
  SlowHub hub(500ms);
  FakeLink link;
  link.on_question([&] {
    link.leave();
    return true;
  });
  HubConnection connection(options_at(hub.port()), "a proof", nullptr, link.parts());
  EXPECT_TRUE(connection.return_after(PeerLoss::reset));
  EXPECT_EQ(hub.hellos(), 1);
}

TEST(HubConnection, AHelloIsWaitedForNoLongerThanTheLinkLasts) {
  SlowHub hub(std::nullopt);
  FakeLink link;
  link.on_question([&] {
    link.leave();
    return false;
  });
  HubConnection connection(options_at(hub.port()), "a proof", nullptr, link.parts());
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(connection.return_after(PeerLoss::reset));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_EQ(hub.hellos(), 1);
}

TEST(HubConnection, AGoodbyeWhoseAnswerWasLostIsSaidAgain) {
  StoreServer server(options_at(0));
  FakeLink link;
  HubConnection connection(options_at(server.port()), "a proof", nullptr, link.parts());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(connection.return_after(PeerLoss::reset));
    EXPECT_THAT(connection.ask({"bye"}), ElementsAre("ok"));
  }
  EXPECT_THAT(connection.ask({"lost?"}), ElementsAre("ok"));
  EXPECT_EQ(server.first_refusal(), std::nullopt) << "it is no stranger";
}

TEST(HubConnection, ARequestThatIsRefusedIsAnError) {
  const StoreServer server(options_at(0));
  FakeLink link;
  HubConnection connection(options_at(server.port()), "a proof", nullptr, link.parts());
  EXPECT_THROW(connection.ask({"hello", std::string(store_wire::kMostProofBytes + 1, 'p')}),
               boost::system::system_error)
      << "the hub drops it";
  EXPECT_TRUE(connection.return_after(PeerLoss::ended));
  EXPECT_THROW(connection.ask({"hello", "a proof"}), Error) << "said once on a connection";
}

}  // namespace
}  // namespace zero::testing
