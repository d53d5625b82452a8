// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/tcp_store.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "launch/store_server.h"
#include "launch/store_socket.h"
#include "launch/store_wire.h"

namespace zero {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using std::chrono::milliseconds;
using store_wire::Message;
using Clock = std::chrono::steady_clock;

/// What an answer may take beyond what was asked for.
constexpr milliseconds kAnswer{10'000};
constexpr milliseconds kFarewell{5'000};

/// "get(a)", "set(a)", "wait(a, b)", "hello".
std::string described(const Message& request) {
  const std::string& verb = request.at(0);
  if (verb == "set") return fmt::format("set({})", request.at(1));
  if (verb != "get" && verb != "wait") return verb;
  return fmt::format("{}({})", verb, fmt::join(request.begin() + 2, request.end(), ", "));
}

}  // namespace

/// One connection to the server; one request at a time.
class TcpStore::Line {
 public:
  /// Throws boost's error where nobody answers until `deadline`.
  Line(const std::string& host, int port, Clock::time_point deadline) {
    tcp::resolver resolver(io_);
    const auto places = resolver.resolve(host, std::to_string(port));
    boost::system::error_code result = asio::error::timed_out;
    asio::async_connect(
        socket_, places,
        [&](boost::system::error_code error, const tcp::endpoint&) { result = error; });
    run_until(deadline);
    if (result) throw boost::system::system_error(result);
    watch_peer(socket_);
  }

  /// Throws boost's error where no answer comes until `deadline`.
  Message ask(const Message& request, Clock::time_point deadline) {
    const std::string frame = store_wire::framed(request);
    transfer(deadline,
             [&](const auto& done) { asio::async_write(socket_, asio::buffer(frame), done); });
    store_wire::Length length{};
    transfer(deadline,
             [&](const auto& done) { asio::async_read(socket_, asio::buffer(length), done); });
    std::string body(store_wire::length_of(length), ' ');
    transfer(deadline,
             [&](const auto& done) { asio::async_read(socket_, asio::buffer(body), done); });
    return store_wire::unframed(body);
  }

 private:
  template <typename Start>
  void transfer(Clock::time_point deadline, const Start& start) {
    boost::system::error_code result = asio::error::timed_out;
    start([&](boost::system::error_code error, std::size_t) { result = error; });
    run_until(deadline);
    if (result) throw boost::system::system_error(result);
  }

  // Nothing stays under way when this returns: what is late is cut off.
  void run_until(Clock::time_point deadline) {
    io_.restart();
    io_.run_until(deadline);
    if (io_.stopped()) return;
    boost::system::error_code ignored;
    socket_.close(ignored);
    io_.run();
  }

  asio::io_context io_;
  tcp::socket socket_{io_};
};

struct TcpStore::State {
  Options options;
  int exceptions = std::uncaught_exceptions();
  std::unique_ptr<StoreServer> server{};  // rank 0's
  std::unique_ptr<Line> first{};          // its end is the rank's
  std::mutex mutex{};
  std::vector<std::unique_ptr<Line>> idle{};  // each thread that asks has one for itself

  std::string name() const {
    return fmt::format("[rank {}] store at {}:{}", options.rank, options.host, options.port);
  }

  /// Tries until rank 0 answers.
  std::unique_ptr<Line> connect_first(Clock::time_point deadline) const {
    constexpr milliseconds kPause{100};
    for (;;) {
      try {
        return std::make_unique<Line>(options.host, options.port, deadline);
      } catch (const boost::system::system_error& error) {
        ZERO_CHECK(Clock::now() + kPause < deadline,
                   "{}: no answer from rank 0 within {} ms: {}; check that rank 0 runs, and that "
                   "address and port are its host's",
                   name(), options.timeout.count(), error.code().message());
        std::this_thread::sleep_for(kPause);
      }
    }
  }

  std::unique_ptr<Line> take(const Message& request) {
    {
      const std::scoped_lock lock(mutex);
      if (!idle.empty()) {
        auto line = std::move(idle.back());
        idle.pop_back();
        return line;
      }
    }
    const auto deadline = Clock::now() + kAnswer;
    try {
      auto line = std::make_unique<Line>(options.host, options.port, deadline);
      talk(*line, {"also", std::string(store_wire::kMagic)}, deadline);
      return line;
    } catch (const boost::system::system_error& error) {
      fail("{}: {}: rank 0, which keeps the store, is gone: {}", name(), described(request),
           error.code().message());
    }
  }

  Message talk(Line& line, const Message& request, Clock::time_point deadline) const {
    try {
      return line.ask(request, deadline);
    } catch (const boost::system::system_error& error) {
      fail("{}: {}: rank 0, which keeps the store, is gone: {}", name(), described(request),
           error.code().message());
    } catch (const Error& error) {
      fail(
          "{}: {}: what answers there is no store of this program: {}; give a port that is free "
          "on rank 0's host",
          name(), described(request), error.what());
    }
  }

  Message ask(const Message& request, milliseconds timeout) {
    auto line = take(request);
    Message reply = talk(*line, request, Clock::now() + timeout + kAnswer);
    const std::scoped_lock lock(mutex);
    idle.push_back(std::move(line));
    return reply;
  }

  void check_came(const Message& reply, milliseconds timeout) const {
    const Message& r = reply;
    ZERO_CHECK(r.at(0) != "lost", "{}: nobody will set {}: {}", name(),
               fmt::join(r.begin() + std::min<std::ptrdiff_t>(2, std::ssize(r)), r.end(), ", "),
               r.at(1));
    ZERO_CHECK(r.at(0) != "missing",
               "{}: nobody set {} within {} ms; check that every rank reached this point", name(),
               fmt::join(r.begin() + 1, r.end(), ", "), timeout.count());
  }
};

TcpStore::TcpStore(const Options& options) : state_(new State{.options = options}) {
  if (options.rank == 0) {
    state_->server = std::make_unique<StoreServer>(options.host, options.port, options.world);
    state_->options.port = state_->server->port();
  }
  const auto deadline = Clock::now() + options.timeout;
  state_->first = state_->connect_first(deadline);
  const Message reply = state_->talk(*state_->first,
                                     {"hello", std::string(store_wire::kMagic),
                                      std::to_string(options.rank), std::to_string(options.world)},
                                     deadline);
  ZERO_CHECK(reply.at(0) == "ok", "{}: rank 0 refuses this process: {}", state_->name(),
             reply.back());
}

TcpStore::~TcpStore() {
  if (std::uncaught_exceptions() > state_->exceptions) return;
  try {
    state_->talk(*state_->first, {"bye"}, Clock::now() + kFarewell);
    if (state_->server) state_->server->wait_for_goodbyes(kFarewell);
  } catch (const std::exception&) {
    // Rank 0 is gone already: nobody needs a goodbye.
  }
}

int TcpStore::port() const { return state_->options.port; }

void TcpStore::set(std::string_view key, std::string_view value) {
  state_->ask({"set", std::string(key), std::string(value)}, kAnswer);
}

std::string TcpStore::get(std::string_view key, milliseconds timeout) {
  const Message reply =
      state_->ask({"get", std::to_string(timeout.count()), std::string(key)}, timeout);
  state_->check_came(reply, timeout);
  return reply.at(1);
}

void TcpStore::wait(const std::vector<std::string>& keys, milliseconds timeout) {
  if (keys.empty()) return;
  Message request{"wait", std::to_string(timeout.count())};
  request.insert(request.end(), keys.begin(), keys.end());
  state_->check_came(state_->ask(request, timeout), timeout);
}

std::optional<std::string> TcpStore::lost() {
  const Message reply = state_->ask({"lost?"}, kAnswer);
  return reply.at(0) == "lost" ? std::optional(reply.at(1)) : std::nullopt;
}

}  // namespace zero
