// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/store/server.h"

#include <array>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/rendezvous/store/wire.h"

namespace zero {
namespace {

namespace asio = boost::asio;
using store_wire::Message;
using Clock = std::chrono::steady_clock;

/// A limit of time that is noticed so much later has passed while this process did not run.
constexpr std::chrono::seconds kUnwatched{1};

}  // namespace

/// One connection: a handshake, an introduction, then one request after another. An error ends only
/// this connection. It is at rest between an answer and the first byte of the next request; all
/// else has a limit of time.
class StoreServer::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(StoreServer& server, StoreSocket socket, std::string peer, std::uint64_t arrival)
      : server_(server),
        stream_(std::move(socket), server.tls_.context()),
        timer_(server.io_),
        peer_(std::move(peer)),
        arrival_(arrival) {}

  void start() {
    guard([&] {
      drop_after(server_.limits_.handshake, "no handshake");
      stream_.async_handshake(asio::ssl::stream_base::server,
                              [self = shared_from_this()](boost::system::error_code error) {
                                self->guard([&] { self->shaken(error); });
                              });
    });
  }

  /// Answers the wait if all its keys are set, a rank is lost, or its time is over.
  void look(StoreState::Time time) {
    guard([&] {
      if (!wait_) return;
      leave_waits();
      const auto reply = server_.state_.answer(*wait_, time);
      if (!reply) {
        at_ = server_.waits_.emplace(wait_->missing(), shared_from_this());
        return;
      }
      wait_.reset();
      send(*reply);
    });
  }

  void drop(const std::string& why) {
    if (!ended_) server_.log_.dropped(peer_, why);
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

  /// Calls `late` after `time`, unless it is in_time() or has another limit before.
  template <typename Late>
  void within(std::chrono::milliseconds time, Late late) {
    const std::uint64_t limit = ++limit_;
    timer_.expires_after(time);
    timer_.async_wait([self = shared_from_this(), limit, late](boost::system::error_code error) {
      if (!error && limit == self->limit_) late(*self);
    });
  }

  void in_time() {
    ++limit_;
    timer_.cancel();
  }

  /// Drops the connection, for lack of `what`, unless it is in_time(). A job that was stopped as a
  /// whole, and goes on, is not late: what its ranks have sent has yet to be read.
  void drop_after(std::chrono::milliseconds time, const char* what) {
    within(time, [time, what, due = Clock::now() + time](Connection& late) {
      if (Clock::now() - due > kUnwatched) return late.drop_after(time, what);
      late.drop(fmt::format("{} within {}", what, timeout_text(time)));
    });
  }

  void leave_waits() {
    if (at_) server_.waits_.erase(*at_);
    at_.reset();
  }

  void send(const Message& message) {
    outgoing_ = store_wire::framed(message);
    if (client_) drop_after(server_.limits_.message, "it does not take its answer");
    asio::async_write(stream_, asio::buffer(outgoing_),
                      [self = shared_from_this()](boost::system::error_code error, std::size_t) {
                        if (error) self->loss_ = peer_loss_of(error);
                        if (error || self->refused_) return self->end();
                        self->outgoing_.clear();
                        self->guard([&] {
                          self->in_time();
                          self->read();
                        });
                      });
  }

  void read() {
    if (const auto body = incoming_.next()) {
      begun_ = false;
      return client_ ? obey(*body) : meet(*body);
    }
    if (client_ && !begun_ && !incoming_.empty()) {
      begun_ = true;
      drop_after(server_.limits_.message, "no whole message");
    }
    if (!receiving_) receive();
  }

  // Goes on while a client waits: so its leaving is noticed.
  void receive() {
    receiving_ = true;
    stream_.async_read_some(
        asio::buffer(piece_),
        [self = shared_from_this()](boost::system::error_code error, std::size_t size) {
          self->receiving_ = false;
          if (error) return self->left(error);
          self->guard([&] {
            ZERO_CHECK(!self->wait_, "a request before the answer to the one before");
            self->incoming_.append({self->piece_.data(), size});
            if (self->outgoing_.empty()) self->read();
          });
        });
  }

  void shaken(boost::system::error_code error) {
    if (!error) return read();
    switch (failure_of(error)) {
      case HandshakeFailure::other_secret:
        return drop("it does not know this job's secret");
      case HandshakeFailure::other_protocol:
        return drop(
            fmt::format("not the handshake of a rank of this program ({})", error.message()));
      case HandshakeFailure::connection:
        return drop("it left before its handshake");
    }
  }

  /// The stream has ended: in good order only between two messages.
  void left(boost::system::error_code error) {
    loss_ = peer_loss_of(error);
    if (error.category() == asio::error::get_ssl_category()) {
      return drop(fmt::format("its bytes were changed on their way ({})", error.message()));
    }
    if (!client_) return drop("it left before it said which rank it is");
    if (!incoming_.empty()) return drop("it left in the middle of a message");
    end();
  }

  /// The introduction of a client, which knows the secret.
  void meet(const std::string& body) {
    try {
      client_ = StoreState::Client{.identity = store_wire::introduced(store_wire::unframed(body))};
    } catch (const Error& error) {
      refused_ = true;
      server_.log_.dropped(peer_, error.what());
      return send({"refused", error.what()});
    }
    incoming_.allow(store_wire::kLargest);
    server_.unproven_.erase(arrival_);
    server_.clients_.insert(shared_from_this());
    send({"ok"});
  }

  void obey(const std::string& body) {
    const Message request = store_wire::unframed(body);
    auto outcome = server_.state_.obey(request, *client_);
    if (const auto* reply = std::get_if<Message>(&outcome)) {
      send(*reply);
      if (request[0] == "set") server_.key_came(request[1]);
      if (request[0] == "hello" && reply->at(0) == "refused") {
        server_.note_refusal(peer_, reply->back());
      }
      return;
    }
    wait_ = std::get<StoreState::Wait>(std::move(outcome));
    within(wait_->patience, [](Connection& late) { late.look(StoreState::Time::over); });
    look(StoreState::Time::left);
    if (wait_ && !receiving_) receive();
  }

  void end() {
    if (ended_) return;
    ended_ = true;
    const auto self = shared_from_this();
    boost::system::error_code ignored;
    stream_.lowest_layer().close(ignored);
    timer_.cancel();
    leave_waits();
    wait_.reset();
    server_.unproven_.erase(arrival_);
    server_.clients_.erase(self);
    if (!client_ || !client_->is_rank) return;
    server_.state_.gone(*client_, loss_);
    server_.rank_lost();
  }

  StoreServer& server_;
  StoreStream stream_;
  asio::steady_timer timer_;  // of the handshake, then of a request, a wait or an answer
  std::uint64_t limit_ = 0;   // how many limits of time there were; the last one counts
  std::string peer_;
  std::uint64_t arrival_;
  std::array<char, 4096> piece_{};
  store_wire::FrameReader incoming_{store_wire::kLargestIntroduction};
  std::string outgoing_;
  bool receiving_ = false;
  PeerLoss loss_ = PeerLoss::reset;  // unless the stream itself ends first
  bool begun_ = false;               // a request of which a part has come
  bool refused_ = false;
  bool ended_ = false;
  std::optional<StoreState::Client> client_;  // once it has introduced itself
  std::optional<StoreState::Wait> wait_;
  std::optional<Waits::iterator> at_;  // this connection's entry in the server's waits
};

StoreServer::StoreServer(const StoreOptions& options)
    : limits_(options.limits),
      tls_(options.secret.value_or(JobSecret::known_to_all()), StoreTls::End::server),
      log_(options.report),
      state_(options.world, options.job),
      acceptor_(io_, log_, options.vanished, [this](StoreSocket socket, const std::string& peer) {
        accept(std::move(socket), peer);
      }) {
  allow_connections(options.world);
  if (options.secret) {
    acceptor_.open_network(options.host, options.port, options.spread);
  } else {
    acceptor_.open_local(options.port);
  }
  thread_ = std::thread([this] { run(); });
}

void StoreServer::accept(StoreSocket socket, const std::string& peer) {
  if (unproven_.size() >= limits_.unproven) {
    const auto oldest = unproven_.begin()->second;
    oldest->drop("newer connections took its place before its handshake");
  }
  const auto connection = std::make_shared<Connection>(*this, std::move(socket), peer, ++arrivals_);
  unproven_.emplace(arrivals_, connection);
  connection->start();
}

void StoreServer::key_came(const std::string& key) {
  const auto [begin, end] = waits_.equal_range(key);
  std::vector<std::shared_ptr<Connection>> waiting;
  for (auto wait = begin; wait != end; ++wait) waiting.push_back(wait->second);
  for (const auto& connection : waiting) connection->look(StoreState::Time::left);
}

void StoreServer::rank_lost() {
  const std::vector<std::shared_ptr<Connection>> all(clients_.begin(), clients_.end());
  for (const auto& connection : all) connection->look(StoreState::Time::left);
}

void StoreServer::note_refusal(const std::string& peer, const std::string& why) {
  const std::scoped_lock lock(refusal_mutex_);
  if (!refusal_) refusal_ = fmt::format("{}: {}", peer, why);
}

std::optional<std::string> StoreServer::first_refusal() const {
  const std::scoped_lock lock(refusal_mutex_);
  return refusal_;
}

// An error outside of a connection, such as a lack of memory in accepting one, must not end the
// thread.
void StoreServer::run() {
  for (;;) {
    try {
      io_.run();
      return;
    } catch (const std::exception& error) {
      log_.dropped("somebody", error.what());
    }
  }
}

StoreServer::~StoreServer() {
  io_.stop();
  thread_.join();
  log_.end();
}

}  // namespace zero
