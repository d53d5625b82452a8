// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/store/acceptor.h"

#include <random>
#include <utility>

#include "base/error.h"

namespace zero {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using local = asio::local::stream_protocol;

constexpr std::chrono::milliseconds kRest{100};

/// " (process 7 of user id 1000 has it)"; empty if the process is unknown.
std::string holder(asio::io_context& io, int port) {
  try {
    // A holder whose backlog is full would let a blocking connection wait for ever.
    local::socket socket(io, local());
    socket.native_non_blocking(true);
    const local::endpoint at(unix_socket_name(port));
    if (::connect(socket.native_handle(), at.data(), static_cast<socklen_t>(at.size())) != 0) {
      return "";
    }
    return " (" + peer_process(socket.native_handle()).text() + " has it)";
  } catch (const std::exception&) {
    return "";
  }
}

int any_port() {
  std::random_device device;
  return std::uniform_int_distribution<int>(1024, 65'535)(device);
}

}  // namespace

void ConnectionLog::dropped(const std::string& peer, const std::string& why) {
  tell(fmt::format("a connection from {} was dropped: {}", peer, why));
}

void ConnectionLog::cannot_accept(const std::string& why) {
  tell(fmt::format("no connection can be taken for now: {}", why));
}

void ConnectionLog::end() {
  if (untold_ == 0) return;
  next_ = {};
  const std::uint64_t rest = std::exchange(untold_, 0);
  tell(fmt::format("{} more connections were dropped or not taken", rest));
}

void ConnectionLog::tell(const std::string& text) {
  const auto now = Clock::now();
  if (!report_ || now < next_) {
    ++untold_;
    return;
  }
  next_ = now + kBetween;
  const std::string before = untold_ == 0 ? "" : fmt::format(" ({} more like it before)", untold_);
  untold_ = 0;
  try {
    report_("[rank 0] rendezvous: " + text + before);
  } catch (const std::exception&) {
    // A failing log must not end the job.
  }
}

void StoreAcceptor::open_local(int port) {
  constexpr int kTries = 100;
  port_ = port == 0 ? any_port() : port;
  boost::system::error_code error = listen_locally(port_);
  for (int i = 0; port == 0 && error == asio::error::address_in_use && i < kTries; ++i) {
    port_ = any_port();
    error = listen_locally(port_);
  }
  ZERO_CHECK(
      !error,
      "[rank 0] rendezvous: cannot listen on port {} of this host for this user: {}{}; give a "
      "MASTER_PORT that is free there",
      port_, error.message(), holder(io_, port_));
  accept(local_, local_rest_);
}

void StoreAcceptor::open_network(const std::string& host, int port, Spread spread) {
  try {
    listen_on_tcp(host, port, spread);
  } catch (const boost::system::system_error& error) {
    fail(
        "[rank 0] rendezvous: cannot listen on port {} of {}: {}; give a MASTER_PORT that is free "
        "there",
        port, host, error.code().message());
  }
  port_ = network_.local_endpoint().port();
  accept(network_, network_rest_);
  // Another process may have the name: ranks that know the secret come by TCP.
  if (!listen_locally(port_)) accept(local_, local_rest_);
}

void StoreAcceptor::listen_on_tcp(const std::string& host, int port, Spread spread) {
  const bool inside = meets_on_loopback(host, spread);
  const auto number = static_cast<std::uint16_t>(port);
  const auto open = [&](const tcp::endpoint& at) {
    network_.open(at.protocol());
    network_.set_option(tcp::acceptor::reuse_address(true));
    if (at.protocol() == tcp::v6()) network_.set_option(asio::ip::v6_only(false));
    network_.bind(at);
    network_.listen();
  };
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
    network_.close(ignored);
    open({asio::ip::address_v4::any(), number});
  }
}

boost::system::error_code StoreAcceptor::listen_locally(int port) {
  boost::system::error_code error;
  boost::system::error_code ignored;
  local_.close(ignored);
  local_.open(local(), error);
  if (!error) local_.bind(local::endpoint(unix_socket_name(port)), error);
  if (!error) local_.listen(asio::socket_base::max_listen_connections, error);
  return error;
}

template <typename Acceptor>
void StoreAcceptor::accept(Acceptor& acceptor, asio::steady_timer& rest) {
  acceptor.async_accept([this, &acceptor, &rest](boost::system::error_code error, auto socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) {
      // Accepts the next connection even if this one fails.
      accept(acceptor, rest);
      return accepted(std::move(socket));
    }
    // Usually descriptors or memory have run out: another attempt at once would fail too.
    log_.cannot_accept(error.message());
    rest.expires_after(kRest);
    rest.async_wait([this, &acceptor, &rest](boost::system::error_code ended) {
      if (!ended) accept(acceptor, rest);
    });
  });
}

void StoreAcceptor::accepted(tcp::socket socket) {
  watch_peer(socket.native_handle(), vanished_);
  boost::system::error_code error;
  const auto from = socket.remote_endpoint(error);
  if (error) return;  // the client has left again
  const std::string peer = fmt::format("{}:{}", from.address().to_string(), from.port());
  on_accept_(StoreSocket(std::move(socket)), peer);
}

void StoreAcceptor::accepted(local::socket socket) {
  const PeerProcess peer = peer_process(socket.native_handle());
  if (!peer.is_of_this_user()) {
    return log_.dropped(peer.text(), "without a secret, only this user's processes may come");
  }
  on_accept_(StoreSocket(std::move(socket)), peer.text());
}

}  // namespace zero
