// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/store/server.h"

#include <array>
#include <boost/asio.hpp>
#include <map>
#include <set>
#include <thread>

#include "base/error.h"
#include "launch/rendezvous/digest.h"
#include "launch/rendezvous/store/doors.h"
#include "launch/rendezvous/store/greeting.h"
#include "launch/rendezvous/store/reports.h"
#include "launch/rendezvous/store/shelf.h"
#include "launch/rendezvous/store/wire.h"

namespace zero {
namespace {

namespace asio = boost::asio;
using store_wire::Message;

constexpr std::chrono::seconds kGreetingTime{5};
/// Connections that have proven nothing yet, at most; a newer one takes the oldest one's place.
constexpr std::size_t kMostStrangers = 128;

}  // namespace

class StoreServer::Keeper {
 public:
  explicit Keeper(const Options& options);
  ~Keeper() {
    io_.stop();
    thread_.join();
  }

  int port() const { return doors_.port(); }
  StoreShelf& shelf() { return shelf_; }

 private:
  class Connection;

  void take(StoreSocket socket, const std::string& peer);
  /// Looks again at every wait: a key came, or a rank is lost.
  void look_again();
  void run();

  JobSecret secret_;
  asio::io_context io_;
  StoreReports reports_;
  StoreShelf shelf_;
  std::uint64_t arrivals_ = 0;
  std::map<std::uint64_t, std::shared_ptr<Connection>> strangers_;  // by arrival
  std::set<std::shared_ptr<Connection>> guests_;
  StoreDoors doors_;
  std::thread thread_;
};

/// One connection: greets, then takes a request, answers it, takes the next. Whatever goes wrong
/// ends this connection alone.
class StoreServer::Keeper::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Keeper& keeper, StoreSocket socket, std::string peer, std::uint64_t arrival)
      : keeper_(keeper),
        socket_(std::move(socket)),
        timer_(keeper.io_),
        peer_(std::move(peer)),
        arrival_(arrival) {}

  void start() {
    guard([&] {
      greeting_.emplace(keeper_.secret_, fresh_nonce());
      timer_.expires_after(kGreetingTime);
      timer_.async_wait([self = shared_from_this()](boost::system::error_code error) {
        if (!error && !self->guest_) self->drop("it did not greet in time");
      });
      send(greeting_->banner());
    });
  }

  /// Answers a wait for which everything has come, or nothing more will.
  void look(StoreShelf::Time time) {
    guard([&] {
      if (!wait_) return;
      const auto reply = keeper_.shelf_.answer(*wait_, time);
      if (!reply) return;
      wait_.reset();
      timer_.cancel();
      send(session_->sealed(*reply));
    });
  }

  void drop(const std::string& why) {
    if (!ended_) keeper_.reports_.dropped(peer_, why);
    end();
  }

 private:
  template <typename Work>
  void guard(Work work) {
    if (ended_) return;
    try {
      work();
    } catch (const std::exception& error) {
      drop(error.what());
    }
  }

  void send(std::string frame) {
    outgoing_ = std::move(frame);
    asio::async_write(socket_, asio::buffer(outgoing_),
                      [self = shared_from_this()](boost::system::error_code error, std::size_t) {
                        if (error || self->refused_) return self->end();
                        self->guard([&] { self->read(); });
                      });
  }

  void read() {
    if (const auto body = incoming_.next()) return guest_ ? obey(*body) : greet(*body);
    socket_.async_read_some(
        asio::buffer(piece_),
        [self = shared_from_this()](boost::system::error_code error, std::size_t size) {
          if (error) return self->end();
          self->guard([&] {
            self->incoming_.append({self->piece_.data(), size});
            self->read();
          });
        });
  }

  void greet(const std::string& body) {
    auto welcome = greeting_->judge(body);
    if (!welcome) {
      refused_ = true;
      keeper_.reports_.dropped(peer_, "it does not know this job's secret");
      return send(store_wire::ServerGreeting::refusal());
    }
    guest_ = StoreShelf::Guest{.caller = welcome->caller};
    session_ = std::move(welcome->session);
    timer_.cancel();
    incoming_.allow(store_wire::kLargest + kDigestBytes);
    keeper_.strangers_.erase(arrival_);
    keeper_.guests_.insert(shared_from_this());
    send(std::move(welcome->frame));
  }

  void obey(const std::string& body) {
    const Message request = session_->opened(body);
    auto outcome = keeper_.shelf_.obey(request, *guest_);
    if (const auto* reply = std::get_if<Message>(&outcome)) {
      send(session_->sealed(*reply));
      if (request[0] == "set") keeper_.look_again();
      return;
    }
    wait_ = std::get<StoreShelf::Wait>(std::move(outcome));
    timer_.expires_after(wait_->patience);
    timer_.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (!error) self->look(StoreShelf::Time::over);
    });
    look(StoreShelf::Time::left);
  }

  void end() {
    if (ended_) return;
    ended_ = true;
    const auto self = shared_from_this();
    boost::system::error_code ignored;
    socket_.close(ignored);
    timer_.cancel();
    wait_.reset();
    keeper_.strangers_.erase(arrival_);
    keeper_.guests_.erase(self);
    if (!guest_ || !guest_->is_rank) return;
    keeper_.shelf_.gone(*guest_);
    keeper_.look_again();
  }

  Keeper& keeper_;
  StoreSocket socket_;
  asio::steady_timer timer_;  // of the greeting, then of a wait
  std::string peer_;
  std::uint64_t arrival_;
  std::array<char, 4096> piece_{};
  store_wire::FrameReader incoming_{store_wire::kLargestGreeting};
  std::string outgoing_;
  std::optional<store_wire::ServerGreeting> greeting_;
  bool refused_ = false;
  bool ended_ = false;
  std::optional<StoreShelf::Guest> guest_;  // once the greeting has proven the secret
  std::optional<store_wire::Session> session_;
  std::optional<StoreShelf::Wait> wait_;
};

StoreServer::Keeper::Keeper(const Options& options)
    : secret_(options.secret.value_or(JobSecret::known_to_all())),
      reports_(options.report),
      shelf_(options.world, options.job),
      doors_(io_, reports_, [this](StoreSocket socket, const std::string& peer) {
        take(std::move(socket), peer);
      }) {
  if (options.secret) {
    doors_.open_network(options.host, options.port, options.spread);
  } else {
    doors_.open_local(options.port);
  }
  thread_ = std::thread([this] { run(); });
}

void StoreServer::Keeper::take(StoreSocket socket, const std::string& peer) {
  if (strangers_.size() >= kMostStrangers) {
    const auto oldest = strangers_.begin()->second;
    oldest->drop("newer connections took its place before it had greeted");
  }
  const auto connection = std::make_shared<Connection>(*this, std::move(socket), peer, ++arrivals_);
  strangers_.emplace(arrivals_, connection);
  connection->start();
}

void StoreServer::Keeper::look_again() {
  const std::vector<std::shared_ptr<Connection>> all(guests_.begin(), guests_.end());
  for (const auto& connection : all) connection->look(StoreShelf::Time::left);
}

// What a connection cannot catch itself, such as a lack of memory as it comes, must not end the
// thread.
void StoreServer::Keeper::run() {
  for (;;) {
    try {
      io_.run();
      return;
    } catch (const std::exception& error) {
      reports_.dropped("somebody", error.what());
    }
  }
}

StoreServer::StoreServer(const Options& options) : keeper_(std::make_unique<Keeper>(options)) {}

StoreServer::~StoreServer() = default;

int StoreServer::port() const { return keeper_->port(); }

void StoreServer::wait_for_goodbyes(std::chrono::milliseconds patience) {
  keeper_->shelf().wait_for_goodbyes(patience);
}

}  // namespace zero
