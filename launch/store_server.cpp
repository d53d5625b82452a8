// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/store_server.h"

#include <algorithm>
#include <boost/asio.hpp>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "launch/store_socket.h"
#include "launch/store_wire.h"

namespace zero {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using store_wire::Message;

/// One rank's state, as its first connection shows it.
enum class Presence { absent, there, left, lost };

/// What all connections share. Used by the server's thread alone, but for the counts that its owner
/// waits for.
struct Shelf {
  int world = 1;
  std::map<std::string, std::string, std::less<>> values;
  std::optional<std::string> lost;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Presence> ranks;

  void mark(int rank, Presence presence) {
    const std::scoped_lock lock(mutex);
    ranks[static_cast<std::size_t>(rank)] = presence;
    changed.notify_all();
  }
  Message missing(const Message& keys) const {
    Message absent;
    for (const std::string& key : keys) {
      if (!values.contains(key)) absent.push_back(key);
    }
    return absent;
  }
};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace

class StoreServer::Keeper {
 public:
  Keeper(const std::string& host, int port, int world);
  ~Keeper() {
    io_.stop();
    thread_.join();
  }

  int port() const { return acceptor_.local_endpoint().port(); }
  Shelf& shelf() { return shelf_; }

 private:
  class Connection;

  void listen(const std::string& host, int port);
  void accept();
  /// Looks again at every wait: a key came, or a rank is lost.
  void look_again();

  asio::io_context io_;
  tcp::acceptor acceptor_{io_};
  Shelf shelf_;
  std::set<std::shared_ptr<Connection>> connections_;
  std::thread thread_;
};

/// One connection: takes a request, answers it, takes the next.
class StoreServer::Keeper::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Keeper& keeper, tcp::socket socket)
      : keeper_(keeper), socket_(std::move(socket)), timer_(keeper.io_) {}

  void read() {
    asio::async_read(socket_, asio::buffer(length_),
                     [self = shared_from_this()](boost::system::error_code error, std::size_t) {
                       self->attempt(error, [&] { self->read_body(); });
                     });
  }

  /// Answers a wait for which everything has come, or nothing more will.
  void look(bool out_of_time) {
    if (awaited_.empty()) return;
    const Message absent = keeper_.shelf_.missing(awaited_);
    const bool lost = keeper_.shelf_.lost.has_value();
    if (!absent.empty() && !lost && !out_of_time) return;
    Message reply{"ok"};
    if (absent.empty() && wants_value_) {
      reply = {"value", keeper_.shelf_.values.find(awaited_.front())->second};
    } else if (!absent.empty()) {
      reply = lost ? Message{"lost", *keeper_.shelf_.lost} : Message{"missing"};
      reply.insert(reply.end(), absent.begin(), absent.end());
    }
    awaited_.clear();
    timer_.cancel();
    answer(reply);
  }

 private:
  // A foreign program that found the port is cut off by what it sends.
  template <typename Work>
  void attempt(boost::system::error_code error, Work work) {
    if (error) return end();
    try {
      work();
    } catch (const std::exception&) {
      end();
    }
  }

  void read_body() {
    body_.resize(store_wire::length_of(length_));
    asio::async_read(socket_, asio::buffer(body_),
                     [self = shared_from_this()](boost::system::error_code error, std::size_t) {
                       self->attempt(error, [&] { self->obey(store_wire::unframed(self->body_)); });
                     });
  }

  void obey(const Message& request) {
    const std::string& verb = request.at(0);
    if (!greeted_) return greet(request);
    if (verb == "set") {
      keeper_.shelf_.values.insert_or_assign(request.at(1), request.at(2));
      answer({"ok"});
      return keeper_.look_again();
    }
    if (verb == "lost?") {
      const auto& lost = keeper_.shelf_.lost;
      return answer(lost ? Message{"lost", *lost} : Message{"ok"});
    }
    if (verb == "bye") {
      if (rank_ >= 0) keeper_.shelf_.mark(rank_, Presence::left);
      rank_ = -1;
      return answer({"ok"});
    }
    ZERO_CHECK(verb == "wait" || verb == "get", "a store knows no \"{}\"", verb);
    wants_value_ = verb == "get";
    awaited_.assign(request.begin() + 2, request.end());
    ZERO_CHECK(!awaited_.empty(), "a wait for nothing");
    timer_.expires_after(std::chrono::milliseconds(std::stoll(request.at(1))));
    timer_.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (!error) self->look(true);
    });
    look(false);
  }

  void greet(const Message& hello) {
    ZERO_CHECK(hello.at(1) == store_wire::kMagic, "not a rank of ours");
    greeted_ = true;
    if (hello.at(0) == "also") return answer({"ok"});
    const int rank = std::stoi(hello.at(2));
    const int world = std::stoi(hello.at(3));
    Shelf& shelf = keeper_.shelf_;
    if (world != shelf.world) {
      return answer({"refused", fmt::format("it was started as one of {} ranks, rank 0 as one of "
                                            "{}; give all ranks the same number of ranks",
                                            world, shelf.world)});
    }
    if (rank < 0 || rank >= world ||
        shelf.ranks[static_cast<std::size_t>(rank)] != Presence::absent) {
      return answer({"refused", fmt::format("rank {} is there already; give each process a rank "
                                            "of its own, and each job a port of its own",
                                            rank)});
    }
    rank_ = rank;
    shelf.mark(rank, Presence::there);
    answer({"ok"});
  }

  void answer(const Message& reply) {
    reply_ = store_wire::framed(reply);
    asio::async_write(socket_, asio::buffer(reply_),
                      [self = shared_from_this()](boost::system::error_code error, std::size_t) {
                        self->attempt(error, [&] { self->read(); });
                      });
  }

  void end() {
    if (rank_ >= 0) {
      keeper_.shelf_.mark(rank_, Presence::lost);
      if (!keeper_.shelf_.lost) {
        keeper_.shelf_.lost = fmt::format(
            "rank {} is gone: its process has ended, or its host cannot be reached", rank_);
      }
      rank_ = -1;
      keeper_.look_again();
    }
    awaited_.clear();
    timer_.cancel();
    keeper_.connections_.erase(shared_from_this());
  }

  Keeper& keeper_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  store_wire::Length length_{};
  std::string body_;
  std::string reply_;
  bool greeted_ = false;
  int rank_ = -1;  // whose first connection this is
  Message awaited_;
  bool wants_value_ = false;
};

StoreServer::Keeper::Keeper(const std::string& host, int port, int world) {
  shelf_.world = world;
  shelf_.ranks.assign(static_cast<std::size_t>(world), Presence::absent);
  listen(host, port);
  accept();
  thread_ = std::thread([this] { io_.run(); });
}

void StoreServer::Keeper::listen(const std::string& host, int port) {
  const bool inside = is_loopback(host);
  const auto number = static_cast<std::uint16_t>(port);
  const auto open = [&](const tcp::endpoint& at) {
    acceptor_.open(at.protocol());
    acceptor_.set_option(tcp::acceptor::reuse_address(true));
    if (at.protocol() == tcp::v6()) acceptor_.set_option(asio::ip::v6_only(false));
    acceptor_.bind(at);
    acceptor_.listen();
  };
  try {
    try {
      if (inside && host != "::1") {
        open({asio::ip::address_v4::loopback(), number});
      } else {
        open({inside ? asio::ip::address_v6::loopback() : asio::ip::address_v6::any(), number});
      }
    } catch (const boost::system::system_error& error) {
      const bool no_v6 = error.code() == asio::error::address_family_not_supported ||
                         error.code() == asio::error::no_protocol_option;
      if (inside || !no_v6) throw;
      boost::system::error_code ignored;
      acceptor_.close(ignored);
      open({asio::ip::address_v4::any(), number});
    }
  } catch (const boost::system::system_error& error) {
    fail("[rank 0] store: cannot listen on port {} of {}: {}; give a port that is free there", port,
         host, error.code().message());
  }
}

void StoreServer::Keeper::accept() {
  acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) {
      watch_peer(socket);
      const auto connection = std::make_shared<Connection>(*this, std::move(socket));
      connections_.insert(connection);
      connection->read();
    }
    accept();
  });
}

void StoreServer::Keeper::look_again() {
  const std::vector<std::shared_ptr<Connection>> all(connections_.begin(), connections_.end());
  for (const auto& connection : all) connection->look(false);
}

StoreServer::StoreServer(const std::string& host, int port, int world)
    : keeper_(std::make_unique<Keeper>(host, port, world)) {}

StoreServer::~StoreServer() = default;

int StoreServer::port() const { return keeper_->port(); }

void StoreServer::wait_for_goodbyes(std::chrono::milliseconds patience) {
  Shelf& shelf = keeper_->shelf();
  std::unique_lock lock(shelf.mutex);
  shelf.changed.wait_for(lock, patience,
                         [&] { return std::ranges::count(shelf.ranks, Presence::there) == 0; });
}

}  // namespace zero
